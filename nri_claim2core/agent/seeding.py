"""Whether this node's maps are seeded, and what becomes of a container when they cannot be.

Off by default, and then nothing of BPF is imported. On a node that cannot have maps - no BPF
file system, no capability, another ABI - seeding is unavailable by name: cpusets hold all the
same, and it is tried again. `onSeedFailure: reject` refuses what cannot be seeded: the creation
where that is known by then, else the start (which CRI-O only logs).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from nri_claim2core.agent.book import Entry
from nri_claim2core.agent.config import SchedulingOptions, ViolationEffect
from nri_claim2core.agent.metrics import Metrics
from nri_claim2core.model.envelope import Ownership
from nri_claim2core.model.errors import HostError, StaleError
from nri_claim2core.model.ids import ContainerId
from nri_claim2core.model.records import ContainerState
from nri_claim2core.nri import Call, Code, RpcError
from nri_claim2core.nri.call import Cancelled

if TYPE_CHECKING:
    from nri_claim2core.agent.seeder import Seeder

log = logging.getLogger(__name__)

STALE_WRITER: Final = "C2C-BPF-20"
DOUBLE_BOOKED: Final = "C2C-ENV-15"


class Seeding:
    """Seeds where it is switched on and possible. Safe for threads."""

    def __init__(self, options: SchedulingOptions, metrics: Metrics, *, root: str = "/") -> None:
        self._options: Final = options
        self._metrics: Final = metrics
        self._root: Final = root
        self._seeder: Seeder | None = None
        self._retired: Seeder | None = None
        self._problem = "not opened yet"
        self._has_lost = False

    @property
    def is_closed_on_failure(self) -> bool:
        """Tell whether a container that cannot be seeded is refused."""
        return self._options.enabled and (self._options.on_seed_failure is ViolationEffect.REJECT)

    def open(self) -> None:
        """Adopt or make the maps, if wanted. Raises: nothing; what is wrong is said once."""
        if not self._options.enabled or self._seeder is not None or self._has_lost:
            return
        # Brings ctypes and libbpf in.
        from nri_claim2core.agent.seeder import Seeder  # noqa: PLC0415
        from nri_claim2core.bpfmap.abi import ExecClass  # noqa: PLC0415

        name = self._options.default_class.name
        try:
            self._seeder = Seeder(
                self._options.pin_directory, ExecClass[name], self._metrics, root=self._root
            )
        except (HostError, StaleError) as error:
            self._lose(error, "containers run in the default class; tried again")
            return
        self._problem = ""
        self._metrics.set("claim2core_seeding_available", 1)
        log.info("seeding", extra={"pins": self._options.pin_directory, "class": name.lower()})

    def close(self) -> None:
        """Let go of the maps; rows and pins stay."""
        for seeder in (self._retired, self._seeder):
            if seeder is not None:
                seeder.close()
        self._seeder = self._retired = None

    def preflight(self) -> None:
        """Refuse a creation that could not be seeded, where that is wanted.

        Raises: RpcError.
        """
        if self.is_closed_on_failure and self._seeder is None:
            raise RpcError(Code.UNAVAILABLE, f"its policy cannot be put in force: {self._problem}")

    def seed(self, entry: Entry, call: Call) -> None:
        """Put a container's policy in force, before its start is answered.

        Raises: RpcError where it cannot be and that is to refuse the start; Cancelled when the
        call was answered meanwhile.
        """
        if not self._options.enabled or not is_governed(entry):
            return
        seeder = self._seeder
        if seeder is None:
            self._fail("unavailable", self._problem)
            return
        try:
            seeder.seed(entry, call)
        except Cancelled:
            raise
        except (HostError, StaleError) as error:
            from nri_claim2core.agent.seeder import say_unseeded  # noqa: PLC0415

            call.afterwards(functools.partial(say_unseeded, entry, error))
            self._fail("failed", str(error))
            return
        self._metrics.count("claim2core_seeds_total", "seeded")

    def release(self, container_ids: Iterable[ContainerId]) -> None:
        """Remove what containers have in the maps. Raises: nothing; a later pass finds the rest."""
        seeder = self._seeder
        if seeder is None:
            return
        for container_id in container_ids:
            try:
                seeder.release(container_id)
            except (HostError, StaleError) as error:
                log.warning(
                    "rows not removed", extra={"container": container_id, "why": str(error)}
                )

    def settle(self, entries: Iterable[Entry]) -> None:
        """After Synchronize: write the rows of all that runs, end all others. Raises: nothing."""
        self.open()
        if (seeder := self._seeder) is not None:
            try:
                seeder.settle(
                    entry for entry in entries if is_governed(entry) and is_running(entry)
                )
            except (HostError, StaleError) as error:
                self._lose(error, "tried again")

    def poll(self, entries: Iterable[Entry]) -> None:
        """Compare ledger and maps, open again what was lost. Raises: nothing."""
        if self._retired is not None:
            # No handler that had it is left: they have deadlines.
            self._retired.close()
            self._retired = None
        if (seeder := self._seeder) is None:
            if self._options.enabled:
                self.settle(entries)
            return
        try:
            seeder.inspect_rows()
        except (HostError, StaleError) as error:
            self._lose(error, "the maps are opened again and every row is written anew")

    def ledger(self) -> dict[str, Any] | None:
        """Give the ledger's document; None where nothing is seeded."""
        seeder = self._seeder
        if seeder is None:
            return None
        from nri_claim2core.agent.ledger import ledger_document  # noqa: PLC0415

        return ledger_document(seeder.ledger)

    def _fail(self, result: str, why: str) -> None:
        self._metrics.count("claim2core_seeds_total", result)
        if self.is_closed_on_failure:
            raise RpcError(
                Code.FAILED_PRECONDITION, f"start refused: its policy is not in force: {why}"
            )

    def _lose(self, error: HostError | StaleError, effect: str) -> None:
        self._seeder, self._retired = None, self._seeder
        self._metrics.set("claim2core_seeding_available", 0)
        if error.code == STALE_WRITER:
            # Taking the token back would start a fight that nobody wins.
            self._has_lost = True
            effect = "nothing is seeded until the plugin is started again"
        if (problem := str(error)) != self._problem:
            self._problem = problem
            log.error(
                "seeding unavailable",
                extra={"reason": problem, "code": error.code, "effect": effect},
            )


def is_governed(entry: Entry) -> bool:
    """Tell whether a container has a policy: proven claims with CPUs that are its alone."""
    envelope = entry.envelope
    return (
        envelope.ownership is not Ownership.NONE
        and bool(entry.links.granted)
        and bool(envelope.cpus)
        and all(finding.code != DOUBLE_BOOKED for finding in envelope.findings)
    )


def is_running(entry: Entry) -> bool:
    """Tell whether there are processes to be governed."""
    return entry.container.pid > 0 and entry.container.state is not ContainerState.STOPPED
