#!/bin/sh
# Build the newest published containerd (it reports CDI devices to NRI plugins) from the
# Go module named in ../peers/containerd/go.mod, with the Go of this machine.
# `go install module@version` refuses modules that carry exclude lines, hence our own go.mod.
. "$(dirname "$0")/common.sh"

PEER="$(cd "$(dirname "$0")/../peers/containerd" && pwd)"
MODULE=github.com/containerd/containerd/v2
VERSION="$(sed -n "s|^require $MODULE v||p" "$PEER/go.mod")"
TARGET="$C2C_CACHE/containerd/$VERSION"

report() {
	echo "containerd-module: containerd $VERSION in $TARGET"
	exit 0
}

[ -x "$TARGET/bin/containerd" ] && report
# Minutes of building for nothing: containerd runs as root only.
[ "$(id -u)" = 0 ] || unavailable "only root could run it"
need go flock
lock_cache
[ -x "$TARGET/bin/containerd" ] && report

STAGING="$C2C_CACHE/.staging-containerd-$VERSION"
LOG="$C2C_CACHE/containerd-module.log"
rm -rf "$STAGING" && mkdir -p "$STAGING/bin"
trap 'rm -rf "$STAGING"' EXIT
# Snapshotters and exporters that the bed never uses are left out; without cgo the
# binaries run whatever the C library.
if ! (cd "$PEER" && CGO_ENABLED=0 GOFLAGS=-mod=readonly go build -p 2 -trimpath -buildvcs=false \
	-tags "no_btrfs no_devmapper no_zfs no_tracing" \
	-ldflags "-s -w -X $MODULE/version.Version=$VERSION" -o "$STAGING/bin/" \
	"$MODULE/cmd/containerd" "$MODULE/cmd/ctr" "$MODULE/cmd/containerd-shim-runc-v2") >"$LOG" 2>&1; then
	unavailable "go build failed, see $LOG: $(tail -n 1 "$LOG")"
fi
mkdir -p "$C2C_CACHE/containerd"
rm -rf "$TARGET"
mv "$STAGING" "$TARGET"
report
