package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// command is one line of input. Messages are in protobuf JSON; which fields count depends
// on the command.
type command struct {
	Cmd        string            `json:"cmd"`
	Pod        json.RawMessage   `json:"pod"`
	Container  json.RawMessage   `json:"container"`
	Resources  json.RawMessage   `json:"resources"`
	Overhead   json.RawMessage   `json:"overhead"`
	Pods       []json.RawMessage `json:"pods"`
	Containers []json.RawMessage `json:"containers"`
	Failed     []json.RawMessage `json:"failed"`
	Error      string            `json:"error"`

	load
}

// load describes generated containers, for "state" and "bench".
type load struct {
	// Count of containers (state) or of create/start rounds (bench).
	Count int `json:"count"`
	// Bytes of one encoded container.
	Bytes int `json:"bytes"`
	// PodCount is the number of pods in "state"; 0 = one per container.
	PodCount int `json:"pod_count"`
	// Claims is the number of distinct claims; container i holds claim i modulo Claims, of
	// CPU i modulo Claims. 0 = no container has a claim.
	Claims int `json:"claims"`
	// CgroupParent is the directory of the cgroups claim-N of all containers that hold claim N;
	// empty = a path for each container, where nothing is.
	CgroupParent string `json:"cgroup_parent"`
	// Warmup rounds of "bench" that are not reported.
	Warmup int `json:"warmup"`
	// PauseUs is slept between rounds of "bench".
	PauseUs int `json:"pause_us"`
}

func (r *runtime) run(request *command) fields {
	reply := fields{"reply": request.Cmd}
	var (
		took time.Duration
		err  error
	)
	switch request.Cmd {
	case "start":
		start := time.Now()
		err = r.nri.Start()
		took = time.Since(start)
	case "state":
		err = r.setState(request, reply)
	case "on_update":
		err = r.setUpdateAnswer(request)
	case "bench":
		err = r.bench(request.load, reply)
	default:
		took, err = r.relay(request, reply)
	}
	reply["duration_ns"] = took.Nanoseconds()
	reply["plugins"] = r.observer.plugins.Load()
	reply["ok"] = err == nil
	reply["error"] = text(err)
	return reply
}

// relay makes one NRI call, as a runtime would while it handles a CRI request.
func (r *runtime) relay(request *command, reply fields) (time.Duration, error) {
	var (
		pod       = &adaptation.PodSandbox{}
		container = &adaptation.Container{}
		resources = &adaptation.LinuxResources{}
		overhead  = &adaptation.LinuxResources{}
	)
	for _, part := range []struct {
		source json.RawMessage
		target proto.Message
	}{{request.Pod, pod}, {request.Container, container}, {request.Resources, resources}, {request.Overhead, overhead}} {
		if err := parse(part.source, part.target); err != nil {
			return 0, err
		}
	}
	block := r.nri.BlockPluginSync()
	defer block.Unblock()

	var (
		err     error
		create  *adaptation.CreateContainerResponse
		update  *adaptation.UpdateContainerResponse
		stop    *adaptation.StopContainerResponse
		unknown bool
		ctx     = context.Background()
		start   = time.Now()
	)
	switch request.Cmd {
	case "run_pod":
		err = r.nri.RunPodSandbox(ctx, &adaptation.RunPodSandboxRequest{Pod: pod})
	case "update_pod":
		_, err = r.nri.UpdatePodSandbox(ctx, &adaptation.UpdatePodSandboxRequest{
			Pod: pod, OverheadLinuxResources: overhead, LinuxResources: resources})
	case "post_update_pod":
		err = r.nri.PostUpdatePodSandbox(ctx, &adaptation.PostUpdatePodSandboxRequest{Pod: pod})
	case "stop_pod":
		err = r.nri.StopPodSandbox(ctx, &adaptation.StopPodSandboxRequest{Pod: pod})
	case "remove_pod":
		err = r.nri.RemovePodSandbox(ctx, &adaptation.RemovePodSandboxRequest{Pod: pod})
	case "create":
		create, err = r.nri.CreateContainer(ctx, &adaptation.CreateContainerRequest{Pod: pod, Container: container})
	case "post_create":
		err = r.nri.PostCreateContainer(ctx, &adaptation.PostCreateContainerRequest{Pod: pod, Container: container})
	case "start_container":
		err = r.nri.StartContainer(ctx, &adaptation.StartContainerRequest{Pod: pod, Container: container})
	case "post_start":
		err = r.nri.PostStartContainer(ctx, &adaptation.PostStartContainerRequest{Pod: pod, Container: container})
	case "update":
		update, err = r.nri.UpdateContainer(ctx, &adaptation.UpdateContainerRequest{
			Pod: pod, Container: container, LinuxResources: resources})
	case "post_update":
		err = r.nri.PostUpdateContainer(ctx, &adaptation.PostUpdateContainerRequest{Pod: pod, Container: container})
	case "stop":
		stop, err = r.nri.StopContainer(ctx, &adaptation.StopContainerRequest{Pod: pod, Container: container})
	case "remove":
		err = r.nri.RemoveContainer(ctx, &adaptation.RemoveContainerRequest{Pod: pod, Container: container})
	default:
		unknown = true
	}
	took := time.Since(start)
	if unknown {
		return 0, fmt.Errorf("unknown command %q", request.Cmd)
	}
	if create != nil {
		reply["adjust"] = asJSON(create.Adjust)
		reply["update"] = listAsJSON(create.Update)
		// The library applies adjustments to the request itself.
		reply["container"] = asJSON(container)
	}
	if update != nil {
		reply["update"] = listAsJSON(update.Update)
	}
	if stop != nil {
		reply["update"] = listAsJSON(stop.Update)
	}
	return took, err
}

func (r *runtime) setState(request *command, reply fields) error {
	pods, err := parseList[adaptation.PodSandbox](request.Pods)
	if err != nil {
		return err
	}
	containers, err := parseList[adaptation.Container](request.Containers)
	if err != nil {
		return err
	}
	if request.Count > 0 {
		morePods, moreContainers := generate(request.load)
		pods, containers = append(pods, morePods...), append(containers, moreContainers...)
	}
	total := 0
	for _, container := range containers {
		total += proto.Size(container)
	}
	reply["container_bytes"] = total
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods, r.containers = pods, containers
	return nil
}

func (r *runtime) setUpdateAnswer(request *command) error {
	failed, err := parseList[adaptation.ContainerUpdate](request.Failed)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.updateError, r.updatesFailed = request.Error, failed
	return nil
}

func parse(source json.RawMessage, target proto.Message) error {
	if len(source) == 0 || string(source) == "null" {
		return nil
	}
	return protojson.Unmarshal(source, target)
}

func parseList[T any, M interface {
	*T
	proto.Message
}](sources []json.RawMessage) ([]M, error) {
	list := []M{}
	for _, source := range sources {
		message := M(new(T))
		if err := parse(source, message); err != nil {
			return nil, err
		}
		list = append(list, message)
	}
	return list, nil
}
