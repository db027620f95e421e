// Command minimal is the smallest useful NRI plugin on the Go stub: it takes the same events
// as Claim2Core's plugin and pins containers that carry a claim variable.
//
// It trusts the environment and keeps no state; it exists as a yardstick for cost, and as a
// second, foreign plugin that writes the same field.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
	"github.com/containerd/nri/pkg/stub"
)

type plugin struct {
	cpus   string
	always bool
	mask   api.EventMask
}

func main() {
	var (
		socket = flag.String("socket", "", "socket of the runtime; default: the one of a pre-launched plugin, or NRI's own")
		index  = flag.String("idx", "", "plugin index")
		name   = flag.String("name", "", "plugin name")
		cpus   = flag.String("cpus", "0", "CPUs to give to containers with a claim")
		always = flag.Bool("always", false, "give them to every container")
		mask   = flag.Int("mask", 0, "subscribe only these events; the stub itself trims nothing to what an older runtime knows")
	)
	flag.Parse()
	nrilog.Set(quiet{})
	options := []stub.Option{}
	if *socket != "" {
		options = append(options, stub.WithSocketPath(*socket))
	}
	if *index != "" {
		options = append(options, stub.WithPluginIdx(*index))
	}
	if *name != "" {
		options = append(options, stub.WithPluginName(*name))
	}
	s, err := stub.New(&plugin{cpus: *cpus, always: *always, mask: api.EventMask(*mask)}, options...)
	if err == nil {
		err = s.Run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "minimal:", err)
		os.Exit(1)
	}
}

func (p *plugin) wants(container *api.Container) bool {
	if p.always {
		return true
	}
	for _, variable := range container.GetEnv() {
		if strings.HasPrefix(variable, "DRA_CPUSET_") {
			return true
		}
	}
	return false
}

// Configure gives the events wanted; none means all that have a handler.
func (p *plugin) Configure(context.Context, string, string, string) (api.EventMask, error) {
	return p.mask, nil
}

func (p *plugin) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	return nil, nil
}

func (p *plugin) CreateContainer(
	_ context.Context, _ *api.PodSandbox, container *api.Container,
) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	if !p.wants(container) {
		return nil, nil, nil
	}
	adjust := &api.ContainerAdjustment{}
	adjust.SetLinuxCPUSetCPUs(p.cpus)
	return adjust, nil, nil
}

func (p *plugin) UpdateContainer(
	_ context.Context, _ *api.PodSandbox, container *api.Container, _ *api.LinuxResources,
) ([]*api.ContainerUpdate, error) {
	if !p.wants(container) {
		return nil, nil
	}
	update := &api.ContainerUpdate{}
	update.SetContainerId(container.GetId())
	update.SetLinuxCPUSetCPUs(p.cpus)
	return []*api.ContainerUpdate{update}, nil
}

func (p *plugin) StopContainer(context.Context, *api.PodSandbox, *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, nil
}

func (p *plugin) RunPodSandbox(context.Context, *api.PodSandbox) error    { return nil }
func (p *plugin) StopPodSandbox(context.Context, *api.PodSandbox) error   { return nil }
func (p *plugin) RemovePodSandbox(context.Context, *api.PodSandbox) error { return nil }
func (p *plugin) UpdatePodSandbox(context.Context, *api.PodSandbox, *api.LinuxResources, *api.LinuxResources) error {
	return nil
}
func (p *plugin) PostUpdatePodSandbox(context.Context, *api.PodSandbox) error { return nil }
func (p *plugin) PostCreateContainer(context.Context, *api.PodSandbox, *api.Container) error {
	return nil
}
func (p *plugin) StartContainer(context.Context, *api.PodSandbox, *api.Container) error { return nil }
func (p *plugin) PostStartContainer(context.Context, *api.PodSandbox, *api.Container) error {
	return nil
}
func (p *plugin) PostUpdateContainer(context.Context, *api.PodSandbox, *api.Container) error {
	return nil
}
func (p *plugin) RemoveContainer(context.Context, *api.PodSandbox, *api.Container) error { return nil }

// quiet drops what the stub logs; errors of the connection end the program with a message.
type quiet struct{}

func (quiet) Debugf(context.Context, string, ...any) {}
func (quiet) Infof(context.Context, string, ...any)  {}
func (quiet) Warnf(context.Context, string, ...any)  {}
func (quiet) Errorf(context.Context, string, ...any) {}
