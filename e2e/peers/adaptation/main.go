// Command adaptation is a container runtime reduced to its NRI side: the real NRI runtime
// library, driven by newline-delimited JSON on stdin and answering in JSON lines on stdout.
//
// It decides registration, event masks, adjustments, conflicts and time-outs as containerd
// does, because it is the code that containerd links. It runs no containers.
//
// Lines with "reply" answer the command of that name, in order; lines with "event" come
// whenever something happens. A command is carried out before the next one is read. End of
// input or "quit" stops the library.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	nrilog "github.com/containerd/nri/pkg/log"
	"github.com/containerd/ttrpc"
)

// runtime is the state that a real runtime would keep about its node.
type runtime struct {
	nri      *adaptation.Adaptation
	observer *observer

	mu            sync.Mutex
	pods          []*adaptation.PodSandbox
	containers    []*adaptation.Container
	updateError   string
	updatesFailed []*adaptation.ContainerUpdate
}

func main() {
	var (
		socket       = flag.String("socket", "", "path of the socket to listen on (required)")
		pluginDir    = flag.String("plugins", "", "directory of pre-launched plugins")
		configDir    = flag.String("configs", "", "directory of configurations of pre-launched plugins")
		name         = flag.String("name", "containerd", "runtime name told to plugins")
		version      = flag.String("version", "v2.4.2", "runtime version told to plugins")
		registration = flag.Duration("registration-timeout", 5*time.Second, "plugin registration time-out")
		request      = flag.Duration("request-timeout", 2*time.Second, "time-out of each request to a plugin")
		verbose      = flag.Bool("verbose", false, "print informational lines of the library as events")
		trace        = flag.Bool("trace", false, "print each call to a plugin as an event")
	)
	flag.Parse()
	if *socket == "" {
		flag.Usage()
		os.Exit(2)
	}
	watch := &observer{verbose: *verbose, trace: *trace}
	nrilog.Set(watch)
	adaptation.SetPluginRegistrationTimeout(*registration)
	adaptation.SetPluginRequestTimeout(*request)

	r := &runtime{observer: watch}
	// "." would find whatever lies in the working directory.
	if *pluginDir == "" {
		*pluginDir = *socket + ".no-plugins"
	}
	if *configDir == "" {
		*configDir = *socket + ".no-configs"
	}
	var err error
	r.nri, err = adaptation.New(*name, *version, r.synchronize, r.updateContainers,
		adaptation.WithSocketPath(*socket),
		adaptation.WithPluginPath(*pluginDir),
		adaptation.WithPluginConfigPath(*configDir),
		adaptation.WithMetrics(watch),
		adaptation.WithDeprecationRecorder(watch),
		adaptation.WithTTRPCOptions(
			[]ttrpc.ClientOpts{ttrpc.WithUnaryClientInterceptor(watch.intercept)}, nil),
	)
	if err == nil {
		err = r.serve(os.Stdin)
	}
	if err != nil {
		event("failed", fields{"error": err.Error()})
		os.Exit(1)
	}
}

// serve carries out commands until quit or the end of input. The library starts with the
// command "start", so that state can be set before the first plugin asks for it.
func (r *runtime) serve(input io.Reader) error {
	reader := bufio.NewReaderSize(input, 1<<16)
	defer r.nri.Stop()
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 0 {
			var request command
			if fault := json.Unmarshal(line, &request); fault != nil {
				output.print(fields{"reply": "", "ok": false, "error": "command: " + fault.Error()})
			} else if request.Cmd == "quit" {
				output.print(fields{"reply": "quit", "ok": true})
				return nil
			} else {
				output.print(r.run(&request))
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// synchronize hands the node's state to a plugin that registers; the library calls it.
func (r *runtime) synchronize(ctx context.Context, deliver adaptation.SyncCB) error {
	r.mu.Lock()
	pods, containers := r.pods, r.containers
	r.mu.Unlock()
	start := time.Now()
	updates, err := deliver(ctx, pods, containers)
	took := time.Since(start)
	plugin := ""
	if last := r.observer.lastSynced.Load(); last != nil {
		plugin = *last
	}
	event("synchronized", fields{
		"plugin": plugin, "duration_ns": took.Nanoseconds(), "error": text(err),
		"pods": len(pods), "containers": len(containers), "update": listAsJSON(updates),
	})
	return err
}

// updateContainers answers a plugin's own request as the "on_update" command said.
func (r *runtime) updateContainers(
	_ context.Context, updates []*adaptation.ContainerUpdate,
) ([]*adaptation.ContainerUpdate, error) {
	event("update_containers", fields{"update": listAsJSON(updates)})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.updateError != "" {
		return r.updatesFailed, errors.New(r.updateError)
	}
	return r.updatesFailed, nil
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
