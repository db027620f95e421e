"""The plugin as its author writes it: a class, and one method for each event it wants.

    class Mine(Plugin):
        def create_container(self, request, call):
            return api.CreateContainerResponse(...)

The events subscribed are the handlers overridden, trimmed to what the runtime knows. A
handler answers None for "nothing to change", raises RpcError to refuse, and may raise
anything else: that call fails with a constant text and the connection stays. Events reach
the same handlers whether the runtime has a method for them or sends StateChange.

Threads: handlers run one at a time, in the order of the events - except that one which ran
past its deadline may still be running while the next event is handled. Its `call` is
cancelled then. Handlers never block on the runtime (`Runner.update_containers`).
"""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.message import Message

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.call import Call
from nri_claim2core.nri.events_table import EVENTS, EventSpec


class Plugin:
    """Base class of plugins; every method may be overridden, none has to be called."""

    def configure(self, request: api.ConfigureRequest) -> int | None:
        """Take the runtime's configuration; a new connection starts with this.

        Gives the mask of the events wanted (some of the handlers that exist), or None for
        all of them. `request.config` is the text of the runtime's drop-in file for a
        pre-launched plugin, else "". Raising refuses the runtime: the connection ends.
        """

    def synchronize_part(
        self, pods: Sequence[api.PodSandbox], containers: Sequence[api.Container]
    ) -> None:
        """Take one part of the node's state; every part passes here, also an only one.

        Overriding this keeps nothing of the messages in memory: `synchronize` gets empty
        sequences then. Parts only ever add; `configure` tells where a new state begins.
        """

    def synchronize(
        self, pods: Sequence[api.PodSandbox], containers: Sequence[api.Container]
    ) -> Sequence[api.ContainerUpdate] | None:
        """Take the whole state of the node as the truth; gives updates to make, if any.

        Called once for each connection, after the last part and before the first event.
        """

    def shutdown(self) -> None:
        """The runtime announces its end. No known runtime does: expect a closed socket."""

    def deadline_reached(self, method: str, request: Message) -> Message | None:
        """Give the answer for a handler whose time is up; None is "nothing to change".

        Called from another thread while the handler may still run: must be quick and not
        wait for what the handler may hold. `method` is the remote method's name and
        `request` what the handler got. May raise RpcError to refuse.
        """

    def run_pod_sandbox(
        self, request: api.RunPodSandboxRequest, call: Call
    ) -> api.RunPodSandboxResponse | None:
        """A pod sandbox runs; its network exists."""

    def update_pod_sandbox(
        self, request: api.UpdatePodSandboxRequest, call: Call
    ) -> api.UpdatePodSandboxResponse | None:
        """The resources of a pod sandbox are about to change."""

    def post_update_pod_sandbox(
        self, request: api.PostUpdatePodSandboxRequest, call: Call
    ) -> api.PostUpdatePodSandboxResponse | None:
        """The resources of a pod sandbox changed."""

    def stop_pod_sandbox(
        self, request: api.StopPodSandboxRequest, call: Call
    ) -> api.StopPodSandboxResponse | None:
        """A pod sandbox stops; not sent by containerd for pods older than itself."""

    def remove_pod_sandbox(
        self, request: api.RemovePodSandboxRequest, call: Call
    ) -> api.RemovePodSandboxResponse | None:
        """A pod sandbox is removed; not sent by containerd for pods older than itself."""

    def create_container(
        self, request: api.CreateContainerRequest, call: Call
    ) -> api.CreateContainerResponse | None:
        """A container is about to be created: adjust it, update others, or refuse."""

    def post_create_container(
        self, request: api.PostCreateContainerRequest, call: Call
    ) -> api.PostCreateContainerResponse | None:
        """A container was created; on CRI-O its init process waits, on containerd none."""

    def start_container(
        self, request: api.StartContainerRequest, call: Call
    ) -> api.StartContainerResponse | None:
        """The init process waits in its final cgroup until this is answered.

        An error refuses the start on containerd and is only logged by CRI-O.
        """

    def post_start_container(
        self, request: api.PostStartContainerRequest, call: Call
    ) -> api.PostStartContainerResponse | None:
        """The workload of a container runs."""

    def update_container(
        self, request: api.UpdateContainerRequest, call: Call
    ) -> api.UpdateContainerResponse | None:
        """The resources of a container are about to change: change them, or refuse.

        Zeros in `request.linux_resources` mean "unchanged".
        """

    def post_update_container(
        self, request: api.PostUpdateContainerRequest, call: Call
    ) -> api.PostUpdateContainerResponse | None:
        """The resources of a container changed."""

    def stop_container(
        self, request: api.StopContainerRequest, call: Call
    ) -> api.StopContainerResponse | None:
        """A container ended, or failed to be created or started; may update others."""

    def remove_container(
        self, request: api.RemoveContainerRequest, call: Call
    ) -> api.RemoveContainerResponse | None:
        """A container is removed."""

    def validate_container_adjustment(
        self, request: api.ValidateContainerAdjustmentRequest, call: Call
    ) -> api.ValidateContainerAdjustmentResponse | None:
        """All plugins adjusted a container: accept or reject. Raising rejects."""


def implemented_events(plugin: Plugin) -> tuple[EventSpec, ...]:
    """Give the events whose handlers the plugin's class overrides."""
    cls = type(plugin)
    return tuple(
        event
        for event in EVENTS
        if getattr(cls, event.handler) is not getattr(Plugin, event.handler)
    )


def mask_of(events: Sequence[EventSpec]) -> int:
    """Give the subscription mask of these events."""
    mask = 0
    for event in events:
        mask |= event.mask
    return mask
