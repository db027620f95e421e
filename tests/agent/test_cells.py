"""Cells: an envelope each, shared, and given again only when the kernel has freed them."""

from __future__ import annotations

import pytest

from nri_claim2core.agent.cells import CellTable
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.errors import HostError

A, B = CpuSet([0, 1]), CpuSet([2])


@pytest.fixture
def cells():
    return CellTable(4)


def test_containers_of_one_envelope_share_a_cell_and_others_do_not(cells):
    assert [cells.acquire("x", A), cells.acquire("y", A), cells.acquire("z", B)] == [1, 1, 2]


def test_a_cell_is_unused_when_its_last_container_goes(cells):
    cells.acquire("x", A)
    cells.acquire("y", A)
    cells.release("x")
    assert cells.unused() == []
    cells.release("y")
    cells.release("y")
    assert cells.unused() == [1]
    assert cells.acquire("again", A) == 1
    assert cells.unused() == []


def test_a_retiring_cell_is_given_to_nobody_until_it_is_freed(cells):
    cells.acquire("x", A)
    cells.release("x")
    cells.retire(1)
    assert [cells.acquire("x", A), cells.acquire("y", B)] == [2, 3]
    with pytest.raises(HostError) as refused:
        cells.acquire("z", CpuSet([3]))
    assert refused.value.code == "C2C-SEED-02"
    assert cells.retiring() == [1]
    cells.freed([1, 2])
    assert cells.acquire("z", CpuSet([3])) == 1
    assert cells.retiring() == []


def test_a_container_whose_envelope_changes_leaves_its_old_cell(cells):
    cells.acquire("x", A)
    assert cells.acquire("x", B) == 2
    assert cells.unused() == [1]


def test_cells_found_at_a_start_are_used_on(cells):
    cells.adopt(3, A)
    cells.adopt(2, A)  # twice the same envelope: one of them goes
    assert cells.acquire("x", A) == 3
    assert cells.retiring() == [2]
    cells.freed([2])
    assert {cells.acquire("y", B), cells.acquire("z", CpuSet([5]))} == {1, 2}
