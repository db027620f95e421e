"""The plugin of `e2e/peers/minimal`, on our nri package: what the binding alone costs.

usage: python -m e2e.bench.bare_plugin SOCKET INDEX NAME
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nri_claim2core.nri import Call, Plugin, Runner
from nri_claim2core.nri import nri_pb2 as api


class BarePlugin(Plugin):
    """Trusts the variable and pins to CPU 0."""

    def synchronize(
        self, pods: Sequence[api.PodSandbox], containers: Sequence[api.Container]
    ) -> Sequence[api.ContainerUpdate] | None:
        return None

    def create_container(
        self, request: api.CreateContainerRequest, call: Call
    ) -> api.CreateContainerResponse | None:
        if not has_claim(request.container):
            return None
        response = api.CreateContainerResponse()
        response.adjust.linux.resources.cpu.cpus = "0"
        return response

    def update_container(
        self, request: api.UpdateContainerRequest, call: Call
    ) -> api.UpdateContainerResponse | None:
        if not has_claim(request.container):
            return None
        response = api.UpdateContainerResponse()
        update = response.update.add(container_id=request.container.id)
        update.linux.resources.cpu.cpus = "0"
        return response

    def stop_container(
        self, request: api.StopContainerRequest, call: Call
    ) -> api.StopContainerResponse | None:
        return None

    def run_pod_sandbox(self, request: api.RunPodSandboxRequest, call: Call) -> None:
        return None

    def stop_pod_sandbox(self, request: api.StopPodSandboxRequest, call: Call) -> None:
        return None

    def remove_pod_sandbox(self, request: api.RemovePodSandboxRequest, call: Call) -> None:
        return None

    def post_create_container(self, request: api.PostCreateContainerRequest, call: Call) -> None:
        return None

    def start_container(self, request: api.StartContainerRequest, call: Call) -> None:
        return None

    def post_start_container(self, request: api.PostStartContainerRequest, call: Call) -> None:
        return None

    def post_update_container(self, request: api.PostUpdateContainerRequest, call: Call) -> None:
        return None

    def remove_container(self, request: api.RemoveContainerRequest, call: Call) -> None:
        return None


def has_claim(container: api.Container) -> bool:
    return any(variable.startswith("DRA_CPUSET_") for variable in container.env)


if __name__ == "__main__":
    socket, index, name = sys.argv[1:]
    Runner(BarePlugin(), name, index, socket_path=socket).run()
