"""Cut the node's state into the parts of a Synchronize, as runtimes do since NRI 0.7.0.

Everything goes into one message first. If that is too long for ttrpc, the numbers of pods and
containers per message are scaled by limit over length, at most 0.9, and the message is tried
anew; what is left is announced with `more`. Up to and including 0.12.3 the scaled number of
pods may become zero while pods remain, and the runtime then sends empty parts until its time
is up; `Splitter(keeps_empty_parts=True)` does the same. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from nri_claim2core.model.errors import Claim2CoreError
from nri_claim2core.nri import nri_pb2 as api

_MIN_OBJECTS = 8  # fewer than this per message are not scaled further
_MAX_FACTOR = 0.9


class SplitError(Claim2CoreError):
    """The state cannot be cut into messages that ttrpc carries."""

    code = "C2C-NRI-24"

    def __init__(self) -> None:
        super().__init__("failed to synchronize plugin with split messages")


class Splitter:
    """Gives one part after the other; `shrink` after one was too long, `advance` after a reply."""

    def __init__(
        self,
        pods: Sequence[api.PodSandbox],
        containers: Sequence[api.Container],
        *,
        keeps_empty_parts: bool = False,
    ) -> None:
        self._pods = pods
        self._containers = containers
        self._nr_pods = len(pods)
        self._nr_containers = len(containers)
        self._keeps_empty_parts = keeps_empty_parts

    def part(self) -> api.SynchronizeRequest:
        """Give the part to be sent now; its `more` says whether others follow."""
        return api.SynchronizeRequest(
            pods=self._pods[: self._nr_pods],
            containers=self._containers[: self._nr_containers],
            more=len(self._pods) > self._nr_pods or len(self._containers) > self._nr_containers,
        )

    def shrink(self, message_bytes: int, limit_bytes: int) -> None:
        """Scale the next part down; raises SplitError when it cannot be."""
        if self._nr_pods + self._nr_containers <= _MIN_OBJECTS or message_bytes <= limit_bytes:
            raise SplitError
        factor = min(limit_bytes / message_bytes, _MAX_FACTOR)
        self._nr_pods = int(self._nr_pods * factor)
        self._nr_containers = int(self._nr_containers * factor)
        if self._nr_pods + self._nr_containers < _MIN_OBJECTS:
            # Go takes 4 of each without looking how many there are, and panics.
            self._nr_pods = min(_MIN_OBJECTS // 2, len(self._pods))
            self._nr_containers = min(_MIN_OBJECTS // 2, len(self._containers))
        if not self._keeps_empty_parts:
            self._nr_pods = max(self._nr_pods, min(1, len(self._pods)))
            self._nr_containers = max(self._nr_containers, min(1, len(self._containers)))

    def advance(self) -> None:
        """Leave out what was sent."""
        self._pods = self._pods[self._nr_pods :]
        self._containers = self._containers[self._nr_containers :]
        self._nr_pods = min(self._nr_pods, len(self._pods))
        self._nr_containers = min(self._nr_containers, len(self._containers))
