"""Which cell of the maps stands for which envelope, and who uses it.

A cell is a distinct envelope: containers of one envelope share it. An index is given again only
when the kernel has freed the cell: until then tasks may wait in its queue.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.errors import HostError
from nri_claim2core.model.ids import ContainerId

NO_CELL: Final = "C2C-SEED-02"
"""Code of a node with more distinct envelopes than cells."""


class CellTable:
    """Indices 1 to `nr_cells` - 1; cell 0 is everybody else. Not safe for threads by itself."""

    def __init__(self, nr_cells: int) -> None:
        self._free = list(range(nr_cells - 1, 0, -1))
        self._index_of: dict[CpuSet, int] = {}
        self._users: dict[int, set[ContainerId]] = {}
        self._cell_of: dict[ContainerId, int] = {}
        self._retiring: set[int] = set()

    def adopt(self, index: int, cpus: CpuSet) -> None:
        """Take over a live cell that was there before us; nobody uses it yet."""
        if cpus in self._index_of or index not in self._free:
            self.retire(index)
            return
        self._free.remove(index)
        self._index_of[cpus] = index
        self._users[index] = set()

    def acquire(self, container_id: ContainerId, cpus: CpuSet) -> int:
        """Give the cell of an envelope and count the container among its users.

        Raises: HostError when every cell is taken.
        """
        self.release(container_id)
        index = self._index_of.get(cpus)
        if index is None:
            if not self._free:
                raise HostError(
                    "every cell of the maps is taken by another envelope",
                    hint="the container runs in the default class; fewer distinct envelopes help",
                    code=NO_CELL,
                )
            index = self._free.pop()
            self._index_of[cpus] = index
            self._users[index] = set()
        self._users[index].add(container_id)
        self._cell_of[container_id] = index
        return index

    def release(self, container_id: ContainerId) -> None:
        """Count the container no more; a cell that nobody uses shows in `unused`."""
        index = self._cell_of.pop(container_id, None)
        if index is not None:
            self._users[index].discard(container_id)

    def unused(self) -> list[int]:
        """Give the live cells without a user, in order."""
        return sorted(index for index, users in self._users.items() if not users)

    def retire(self, index: int) -> None:
        """Give a cell to nobody any more; the kernel is being asked to drain it."""
        for cpus in [each for each, at in self._index_of.items() if at == index]:
            del self._index_of[cpus]
        self._users.pop(index, None)
        if index in self._free:
            self._free.remove(index)
        self._retiring.add(index)

    def retiring(self) -> list[int]:
        """Give the cells that wait to be freed, in order."""
        return sorted(self._retiring)

    def freed(self, indices: Iterable[int]) -> None:
        """Take cells back that the kernel has freed."""
        for index in indices:
            if index in self._retiring:
                self._retiring.discard(index)
                self._free.append(index)
