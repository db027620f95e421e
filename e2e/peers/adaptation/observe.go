package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"
)

// observer turns what the library tells (log lines, metrics, deprecations) into events.
//
// The library has no callback for "a plugin registered" or "a plugin went away"; its log
// formats are the only voice for that, and they are fixed by the version in go.mod.
type observer struct {
	verbose    bool
	trace      bool
	plugins    atomic.Int64
	lastSynced atomic.Pointer[string]
}

const (
	formatRegistered  = "plugin %q registered as %q (with NRI version %s)"
	formatSyncing     = "synchronizing plugin %s"
	formatConnected   = "plugin %q connected and synchronized"
	formatPreLaunched = "pre-installed NRI plugin %q synchronization success"
	formatClosed      = "connection to plugin %q closed"
	formatClosing     = "closing plugin %s, failed to handle %s request: %v"
)

func (o *observer) log(level, format string, args []any) {
	switch format {
	case formatRegistered:
		event("register", fields{"plugin": args[1], "qualified": args[0], "nri_version": args[2]})
	case formatSyncing:
		name := fmt.Sprint(args[0])
		o.lastSynced.Store(&name)
	case formatConnected, formatPreLaunched:
		event("registered", fields{"plugin": args[0], "prelaunched": format == formatPreLaunched})
	case formatClosed:
		event("lost", fields{"plugin": args[0]})
	case formatClosing:
		event("closing", fields{"plugin": args[0], "request": args[1], "error": fmt.Sprint(args[2])})
	default:
		if o.verbose || level == "warning" || level == "error" {
			event("log", fields{"level": level, "text": fmt.Sprintf(format, args...)})
		}
	}
}

// Debugf implements the library's logger.
func (o *observer) Debugf(_ context.Context, format string, args ...any) {
	o.log("debug", format, args)
}

// Infof implements the library's logger.
func (o *observer) Infof(_ context.Context, format string, args ...any) {
	o.log("info", format, args)
}

// Warnf implements the library's logger.
func (o *observer) Warnf(_ context.Context, format string, args ...any) {
	o.log("warning", format, args)
}

// Errorf implements the library's logger.
func (o *observer) Errorf(_ context.Context, format string, args ...any) {
	o.log("error", format, args)
}

// RecordPluginInvocation implements the library's metrics.
func (o *observer) RecordPluginInvocation(string, string, error) {}

// RecordPluginLatency implements the library's metrics.
func (o *observer) RecordPluginLatency(string, string, time.Duration) {}

// RecordPluginAdjustments implements the library's metrics.
func (o *observer) RecordPluginAdjustments(string, string, *adaptation.ContainerAdjustment, int, int) {
}

// UpdatePluginCount keeps the number of plugins that would get the next event.
func (o *observer) UpdatePluginCount(count int) { o.plugins.Store(int64(count)) }

// intercept sees every call to a plugin as it goes on the wire: the only place where the
// event mask of a plugin, and the difference of a dedicated RPC and StateChange, show.
func (o *observer) intercept(ctx context.Context, request *ttrpc.Request, response *ttrpc.Response,
	info *ttrpc.UnaryClientInfo, invoke ttrpc.Invoker) error {
	err := invoke(ctx, request, response)
	if request.Method == "Configure" && err == nil {
		reply := &api.ConfigureResponse{}
		if proto.Unmarshal(response.Payload, reply) == nil {
			event("configured", fields{"mask": reply.Events})
		}
	}
	if o.trace {
		event("rpc", fields{
			"method": request.Method, "request_bytes": len(request.Payload),
			"reply_bytes": len(response.Payload), "error": text(err),
		})
	}
	return err
}

// PluginWarning says that an event had to go out as StateChange.
func (o *observer) PluginWarning(_ context.Context, kind adaptation.Deprecation, plugin, text string) {
	event("deprecated", fields{"plugin": plugin, "feature": fmt.Sprint(kind), "text": text})
}
