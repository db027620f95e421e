//go:build tools

// Package tools pins the containerd commands that the test bed builds from the
// published module; nothing here is linked into the product.
package tools

import (
	_ "github.com/containerd/containerd/v2/cmd/containerd"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/v2/cmd/ctr"
)
