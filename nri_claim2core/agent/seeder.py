"""Seed the maps: policy of a container in force before its workload's first instruction.

The order of one seed (all of it before StartContainer is answered): cgroup and its id, ledger
intends, one run of the mutation program writes cell, cgroup row and the row of init's thread,
read back, ledger done. The cgroup row governs everything that will ever run in the container;
the thread row survives exec and names the exact thread.

A container that cannot be seeded runs in the default class and is reported; nothing here takes
CPUs from anybody.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Iterable, Sequence
from typing import Final

from nri_claim2core.agent.book import Entry
from nri_claim2core.agent.cells import CellTable
from nri_claim2core.agent.ledger import CGROUPS, TASKS, Key, Ledger, LedgerRow
from nri_claim2core.agent.metrics import Metrics
from nri_claim2core.bpfmap import requests
from nri_claim2core.bpfmap.abi import CellState, CgroupId, ExecClass, Result, Tid
from nri_claim2core.bpfmap.errors import PinGoneError
from nri_claim2core.bpfmap.identity import check_pid_namespace, read_cgroup_id, read_pid_ino
from nri_claim2core.bpfmap.loader import Loaded, load
from nri_claim2core.bpfmap.mutate import Writer, error_of
from nri_claim2core.bpfmap.readback import read_cells, read_cgroups, read_tasks
from nri_claim2core.bpfmap.requests import Outcome, Request
from nri_claim2core.bpfmap.rows import CellRow, CgroupRow, Policy, TaskRow
from nri_claim2core.host.default_cgroup import find_default_cgroup
from nri_claim2core.model.errors import HostError, StaleError
from nri_claim2core.model.ids import ContainerId
from nri_claim2core.nri import Call

log = logging.getLogger(__name__)

_GONE: Final = frozenset({Result.OK, Result.NOT_FOUND, Result.OTHER_GENERATION, Result.OTHER_TASK})
"""Results of a deletion after which the row that was meant is not there."""


class Seeder:
    """The one writer of the maps. Safe for threads: one seed or pass at a time."""

    def __init__(
        self, directory: str, exec_class: ExecClass, metrics: Metrics, *, root: str = "/"
    ) -> None:
        """Adopt or make the maps and become their writer.

        Raises: HostError by name: no bpffs, no capability, another ABI, pid namespace.
        Blocking: some tens of milliseconds.
        """
        check_pid_namespace()
        self.ledger: Final = Ledger()
        self._class = exec_class
        self._metrics = metrics
        self._root = root
        self._lock = threading.Lock()
        self._suspects: frozenset[Key] = frozenset()
        self._loaded: Final[Loaded] = _load(directory)
        try:
            self._writer = Writer(self._loaded)
            self._token = self._writer.take()
            self._cells = CellTable(self._loaded.maps.infos["c2c_cells"].max_entries)
            for cell in _known_cells(self._loaded):
                if not cell.index:
                    continue
                if cell.state is CellState.LIVE and cell.sealed:
                    self._cells.adopt(cell.index, cell.cpus)
                else:
                    self._cells.retire(cell.index)
        except BaseException:
            self._loaded.close()
            raise

    @property
    def token(self) -> int:
        """What the kernel knows this writer by."""
        return self._token

    def close(self) -> None:
        """Give the descriptors back; maps, rows and pins stay."""
        self._writer.close()
        self._loaded.close()

    def seed(self, entry: Entry, call: Call | None = None) -> None:
        """Put a container's policy in force.

        Raises: HostError or StaleError that says why not, with nothing written or everything
        taken back; Cancelled when the call was answered meanwhile. Blocking: about 0.2 ms.
        """
        container = entry.container
        cgroup = find_default_cgroup(container.pid, container.cgroups_path, self._root)
        cgroup_id = read_cgroup_id(cgroup)
        pid_ino = read_pid_ino(Tid(container.pid))
        with self._lock:
            index = self._cells.acquire(container.id, entry.envelope.cpus)
            made = self._rows(entry, cgroup, cgroup_id, pid_ino, index)
            policy = Policy(
                cell=index, claim_key=_claim_key(made[0].claims), exec_class=self._class
            )
            wanted = [
                requests.put_cell(index, entry.envelope.cpus),
                requests.put_cgroup(CgroupRow(cgroup_id=cgroup_id, policy=policy)),
                requests.put_task(TaskRow(tid=Tid(container.pid), pid_ino=pid_ino, policy=policy)),
            ]
            try:
                if call is not None:
                    call.check()
                self.ledger.intend(made)
                self._write(made, wanted)
            except BaseException:
                self._take_back(container.id)
                raise

    def release(self, container_id: ContainerId) -> None:
        """Remove what a container has in the maps. Raises: HostError, StaleError."""
        with self._lock:
            self._take_back(container_id)

    def settle(self, entries: Iterable[Entry]) -> None:
        """After a start: write the rows of what runs, then make everything older void.

        What was in force stays so until its new row is there. Raises: HostError, StaleError.
        Blocking: about 0.2 ms per container.
        """
        for entry in entries:
            try:
                self.seed(entry)
            except (HostError, StaleError) as error:
                self._count("failed")
                say_unseeded(entry, error)
            else:
                self._count("seeded")
        with self._lock:
            self._writer.raise_floor(self._token)
            self._delete(self._actual().keys() - {row.at for row in self.ledger.rows()})

    def inspect_rows(self) -> int:
        """Compare ledger and maps; sweep what nobody meant. Gives the number of extra rows.

        An extra row is removed when two passes in a row found no provenance. Also retires cells
        that nobody uses. Raises: HostError (pins gone or replaced), StaleError (another writer).
        """
        self._loaded.maps.check_pins()
        with self._lock:
            found = self.ledger.compare(self._actual())
            sure = found.extra & self._suspects
            self._suspects = found.extra
            for key in sure:
                log.warning("row without provenance", extra={"map": key[0], "key": key[1]})
            self._metrics.count("claim2core_sweep_removed_total", by=self._delete(sure))
            # Ended with its cgroup or thread, in the kernel.
            self.ledger.forget(found.missing | found.different)
            self._retire_cells()
            self._metrics.set("claim2core_map_entries", len(self.ledger.rows()), "explained")
            self._metrics.set("claim2core_map_entries", len(found.extra - sure), "unexplained")
        return len(found.extra)

    # -- under the lock -------------------------------------------------------------------

    def _rows(
        self, entry: Entry, cgroup: str, cgroup_id: CgroupId, pid_ino: int, index: int
    ) -> list[LedgerRow]:
        claims = tuple(link.claim_uid for link in entry.links.granted)

        def row(table: str, key: int, ino: int = 0) -> LedgerRow:
            return LedgerRow(
                map=table,
                key=key,
                container_id=entry.container.id,
                container=entry.container.name,
                pod=f"{entry.pod.namespace}/{entry.pod.name}",
                claims=claims,
                cgroup=cgroup,
                cgroup_id=cgroup_id,
                exec_class=self._class.name.lower().replace("_", "-"),
                cell=index,
                pid_ino=ino,
            )

        return [row(CGROUPS, cgroup_id), row(TASKS, entry.container.pid, pid_ino)]

    def _write(self, made: Sequence[LedgerRow], wanted: Sequence[Request]) -> None:
        outcomes = self._writer.apply(wanted)
        self._tally(outcomes)
        for request, outcome in zip(wanted, outcomes, strict=True):
            if outcome.result is not Result.OK:
                raise error_of(outcome.result, outcome.error, request.op.name)
        for row, outcome in zip(made, outcomes[1:], strict=True):
            self.ledger.done(row.at, outcome.generation)

    def _take_back(self, container_id: ContainerId) -> None:
        rows = self.ledger.of_container(container_id)
        self._cells.release(container_id)
        wanted = [_deletion(row.at, row.generation, row.pid_ino) for row in rows]
        if wanted:
            self._tally(self._writer.apply(wanted))
        self.ledger.forget(row.at for row in rows)

    def _actual(self) -> dict[Key, int]:
        maps = self._loaded.maps
        found: dict[Key, int] = {
            (CGROUPS, row.cgroup_id): row.policy.generation for row in read_cgroups(maps)
        }
        found |= {(TASKS, row.tid): row.policy.generation for row in read_tasks(maps)}
        return found

    def _delete(self, keys: Iterable[Key]) -> int:
        wanted = [_deletion(key) for key in sorted(keys)]
        outcomes = self._writer.apply(wanted) if wanted else []
        self._tally(outcomes)
        return sum(outcome.result is Result.OK for outcome in outcomes)

    def _retire_cells(self) -> None:
        unused = self._cells.unused()
        if unused:
            self._writer.apply([requests.drain_cell(index) for index in unused])
            for index in unused:
                self._cells.retire(index)
        waiting = self._cells.retiring()
        if waiting:
            outcomes = self._writer.apply([requests.free_cell(index) for index in waiting])
            self._cells.freed(
                index
                for index, outcome in zip(waiting, outcomes, strict=True)
                if outcome.result in (Result.OK, Result.NOT_FOUND)
            )

    def _tally(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self._metrics.count(
                "claim2core_map_writes_total", "ok" if outcome.result in _GONE else "refused"
            )

    def _count(self, result: str) -> None:
        self._metrics.count("claim2core_seeds_total", result)


def _load(directory: str) -> Loaded:
    try:
        return load(directory)
    except PinGoneError:
        # A part of a set is of no use to anybody. One of another ABI may be in use: it stays.
        return load(directory, replace=True)


def _known_cells(loaded: Loaded) -> list[CellRow]:
    try:
        return read_cells(loaded.maps)
    except ValueError as error:
        raise HostError(
            f"a cell of the pinned maps is in no state that is known here: {error}",
            path=loaded.maps.directory,
            hint="another hand wrote it: remove the pins, and start the plugin again",
            code="C2C-SEED-03",
        ) from error


def say_unseeded(entry: Entry, error: HostError | StaleError) -> None:
    """Report a container that runs in the default class."""
    log.warning(
        "container not seeded",
        extra={
            "container": entry.container.id,
            "pod": f"{entry.pod.namespace}/{entry.pod.name}",
            "reason": error.message,
            "hint": error.hint,
            "code": error.code,
            "effect": "its cpuset holds; it runs in the default class",
        },
    )


def _deletion(key: Key, generation: int = 0, pid_ino: int = 0) -> Request:
    table, number = key
    if table == CGROUPS:
        return requests.delete_cgroup(CgroupId(number), generation)
    return requests.delete_task(Tid(number), pid_ino, generation)


def _claim_key(claims: Sequence[str]) -> int:
    digest = hashlib.blake2b("\n".join(sorted(claims)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
