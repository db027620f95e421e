package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"google.golang.org/protobuf/proto"
)

const (
	// A service-rich namespace: what containerd reported for a plain pod there.
	nrEnv    = 60
	nrMounts = 14
)

// claimUID is UUID-shaped and the same in every run: whoever drives a benchmark writes CDI
// specs for these claims.
func claimUID(claim int) string {
	return fmt.Sprintf("c1a10000-0000-4000-8000-%012d", claim)
}

// containerID has the length of a real one.
func containerID(index int) string {
	return fmt.Sprintf("%064x", 0xc0<<32+index)
}

func generatePod(index int) *adaptation.PodSandbox {
	uid := fmt.Sprintf("90d00000-0000-4000-8000-%012d", index)
	return &adaptation.PodSandbox{
		Id:          fmt.Sprintf("%064x", 0x90d<<32+index),
		Name:        fmt.Sprintf("load-%d", index),
		Uid:         uid,
		Namespace:   "bench",
		Labels:      map[string]string{"app": "load"},
		Annotations: map[string]string{},
		Linux: &adaptation.LinuxPodSandbox{
			CgroupParent: "/kubepods/besteffort/pod" + uid,
		},
	}
}

// generateContainer pads an annotation until the encoded message has l.Bytes, or a few less.
func generateContainer(index int, pod *adaptation.PodSandbox, l load) *adaptation.Container {
	container := &adaptation.Container{
		Id:           containerID(index),
		PodSandboxId: pod.Id,
		Name:         "worker",
		State:        adaptation.ContainerState_CONTAINER_RUNNING,
		Labels:       map[string]string{"io.kubernetes.container.name": "worker"},
		Annotations:  map[string]string{},
		Args:         []string{"/usr/bin/worker", "--threads=4"},
		Linux: &adaptation.LinuxContainer{
			CgroupsPath: pod.Linux.CgroupParent + "/" + containerID(index),
			Resources: &adaptation.LinuxResources{
				Memory: &adaptation.LinuxMemory{},
				Cpu:    &adaptation.LinuxCPU{Shares: &adaptation.OptionalUInt64{Value: 2}},
			},
		},
	}
	for i := range nrEnv {
		container.Env = append(container.Env,
			fmt.Sprintf("SERVICE_%02d_PORT_8080_TCP_ADDR=10.96.%d.%d", i, index%250, i))
	}
	for i := range nrMounts {
		container.Mounts = append(container.Mounts, &adaptation.Mount{
			Destination: fmt.Sprintf("/etc/load/volume-%02d", i),
			Type:        "bind",
			Source:      fmt.Sprintf("/var/lib/kubelet/pods/%s/volumes/configmap/volume-%02d", pod.Uid, i),
			Options:     []string{"rbind", "rprivate", "ro"},
		})
	}
	if l.Claims > 0 {
		claim := index % l.Claims
		uid := claimUID(claim)
		container.Env = append(container.Env, "DRA_CPUSET_"+uid+"="+strconv.Itoa(claim))
		container.CDIDevices = []*adaptation.CDIDevice{{Name: "dra.k8s.io/cpu=claim-" + uid}}
		if l.CgroupParent != "" {
			container.Linux.CgroupsPath = fmt.Sprintf("%s/claim-%d", l.CgroupParent, claim)
		}
	}
	// Key and framing of the padding itself take at most 20 bytes.
	if missing := l.Bytes - proto.Size(container) - 20; missing > 0 {
		container.Annotations["padding"] = strings.Repeat("x", missing)
	}
	return container
}

func generate(l load) ([]*adaptation.PodSandbox, []*adaptation.Container) {
	nrPods := l.PodCount
	if nrPods == 0 {
		nrPods = l.Count
	}
	pods := make([]*adaptation.PodSandbox, nrPods)
	for i := range pods {
		pods[i] = generatePod(i)
	}
	containers := make([]*adaptation.Container, l.Count)
	for i := range containers {
		containers[i] = generateContainer(i, pods[i%nrPods], l)
	}
	return pods, containers
}

// bench takes containers through their life one at a time and reports, in nanoseconds, how
// long the runtime was held up by the plugins in CreateContainer and StartContainer.
func (r *runtime) bench(l load, reply fields) error {
	createNs, startNs := make([]int64, 0, l.Count), make([]int64, 0, l.Count)
	ctx := context.Background()
	block := r.nri.BlockPluginSync()
	defer block.Unblock()
	plugins := r.observer.plugins.Load()
	for round := -l.Warmup; round < l.Count; round++ {
		// Numbers above those of "state", so that no container lives twice.
		index := 1_000_000 + l.Warmup + round
		pod := generatePod(index)
		container := generateContainer(index, pod, l)
		container.State = adaptation.ContainerState_CONTAINER_CREATED
		if err := r.nri.RunPodSandbox(ctx, &adaptation.RunPodSandboxRequest{Pod: pod}); err != nil {
			return err
		}
		create := &adaptation.CreateContainerRequest{Pod: pod, Container: container}
		begin := time.Now()
		_, err := r.nri.CreateContainer(ctx, create)
		tookCreate := time.Since(begin)
		if err != nil {
			return err
		}
		if err := r.nri.PostCreateContainer(ctx, &adaptation.PostCreateContainerRequest{Pod: pod, Container: container}); err != nil {
			return err
		}
		start := &adaptation.StartContainerRequest{Pod: pod, Container: container}
		begin = time.Now()
		err = r.nri.StartContainer(ctx, start)
		tookStart := time.Since(begin)
		if err != nil {
			return err
		}
		if err := r.finish(ctx, pod, container); err != nil {
			return err
		}
		if round >= 0 {
			createNs = append(createNs, tookCreate.Nanoseconds())
			startNs = append(startNs, tookStart.Nanoseconds())
		}
		if l.PauseUs > 0 {
			time.Sleep(time.Duration(l.PauseUs) * time.Microsecond)
		}
	}
	reply["create_ns"], reply["start_ns"] = createNs, startNs
	if now := r.observer.plugins.Load(); now != plugins {
		return fmt.Errorf("%d plugins at the beginning, %d at the end", plugins, now)
	}
	return nil
}

func (r *runtime) finish(ctx context.Context, pod *adaptation.PodSandbox, container *adaptation.Container) error {
	steps := []func() error{
		func() error {
			return r.nri.PostStartContainer(ctx, &adaptation.PostStartContainerRequest{Pod: pod, Container: container})
		},
		func() error {
			_, err := r.nri.StopContainer(ctx, &adaptation.StopContainerRequest{Pod: pod, Container: container})
			return err
		},
		func() error {
			return r.nri.RemoveContainer(ctx, &adaptation.RemoveContainerRequest{Pod: pod, Container: container})
		},
		func() error { return r.nri.StopPodSandbox(ctx, &adaptation.StopPodSandboxRequest{Pod: pod}) },
		func() error { return r.nri.RemovePodSandbox(ctx, &adaptation.RemovePodSandboxRequest{Pod: pod}) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
