"""Apply container updates to the stored containers and, where there is one, to the process.

The difference between the runtimes: containerd takes from a plugin's update what CRI can say,
and before the workload has started only stores it - which does not reach a process that
already waits in its cgroup. CRI-O takes the whole message, leaves containers alone that are
neither created nor running, and always goes to the process.
"""

from __future__ import annotations

from collections.abc import Iterable

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.runtime.backend import BackendError, ContainerBackend
from nri_claim2core.nri.runtime.journal import CallFailure
from nri_claim2core.nri.runtime.node import ContainerRecord, Node, Phase
from nri_claim2core.nri.runtime.profiles_table import Profile
from nri_claim2core.nri.runtime.resources import copy_of, merge_update
from nri_claim2core.nri.runtime.updates import find_by_prefix


class Updater:
    """Changes resources of stored containers. The caller holds the runtime's lock."""

    def __init__(self, node: Node, profile: Profile, backend: ContainerBackend) -> None:
        self._node = node
        self._profile = profile
        self._backend = backend

    def apply_all(self, updates: Iterable[api.ContainerUpdate]) -> CallFailure | None:
        """Apply what plugins asked for; give the failure if one did not ask to ignore it.

        Updates of unknown containers, and of an empty id, are skipped.
        """
        failed = False
        for update in updates:
            key = find_by_prefix(self._node.containers, update.container_id)
            if key is None:
                continue
            record = self._node.containers[key]
            if self._profile.is_crio and record.phase not in {Phase.CREATED, Phase.RUNNING}:
                continue
            try:
                self.apply(record, update.linux.resources, full=self._profile.is_crio)
            except BackendError:
                failed = failed or not update.ignore_failure
        return CallFailure("NRI update of some containers failed") if failed else None

    def apply(self, record: ContainerRecord, update: api.LinuxResources, *, full: bool) -> None:
        """Apply one update; raises BackendError, and nothing is stored."""
        stored = record.spec.linux.resources
        before = copy_of(stored)
        merge_update(stored, update, full=full)
        reaches_process = record.phase is Phase.RUNNING or (
            self._profile.is_crio and record.has_process
        )
        if reaches_process:
            try:
                self._backend.update(record.spec, stored)
            except Exception as error:
                stored.CopyFrom(before)
                if isinstance(error, BackendError):
                    raise
                # A backend's own failure fails this update, not the thread that serves plugins.
                raise BackendError(f"{type(error).__name__}: {error}") from error
