"""How resource values move: explicit zeros, CRI's subset, unchanged values."""

import pytest

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.runtime.resources import from_cri, merge_update, take_resources


def test_kubelets_cpuset_update_carries_explicit_zeros():
    asked = api.LinuxResources(cpu=api.LinuxCPU(cpus="0"))
    # By hand: memory{limit{}} = 0a 02 0a 00; cpu{shares{} quota{} period{} cpus "0"}
    # = 12 09 0a 00 12 00 1a 00 32 01 30.
    assert from_cri(asked).SerializeToString() == bytes.fromhex("0a020a0012090a0012001a00320130")


def test_cri_carries_only_its_own_fields():
    asked = api.LinuxResources(
        memory=api.LinuxMemory(swap=api.OptionalInt64(value=5)),
        blockio_class=api.OptionalString(value="x"),
        pids=api.LinuxPids(limit=3),
        unified={"memory.high": "1"},
        hugepage_limits=[api.HugepageLimit(page_size="2MB", limit=1)],
    )
    sent = from_cri(asked)
    assert not sent.memory.HasField("swap")
    assert not sent.HasField("blockio_class")
    assert not sent.HasField("pids")
    assert dict(sent.unified) == {"memory.high": "1"}
    assert len(sent.hugepage_limits) == 1


def test_a_wish_of_zero_is_kept_as_present():
    target = api.LinuxResources()
    claimed = []
    wish = api.LinuxResources(memory=api.LinuxMemory(limit=api.OptionalInt64()))
    take_resources(wish, (target,), lambda field, key: claimed.append((field, key)))
    assert target.memory.HasField("limit")
    assert claimed == [(api.MemLimit, None)]


@pytest.mark.parametrize("full", [False, True])
def test_zero_and_empty_leave_the_store_as_it_is(full):
    stored = api.LinuxResources(
        cpu=api.LinuxCPU(cpus="2-3", mems="1", shares=api.OptionalUInt64(value=7)),
        memory=api.LinuxMemory(limit=api.OptionalInt64(value=9)),
    )
    before = api.LinuxResources.FromString(stored.SerializeToString())
    merge_update(stored, from_cri(api.LinuxResources()), full=full)
    assert stored == before


def test_a_memory_limit_is_the_swap_limit_as_well():
    stored = api.LinuxResources()
    update = api.LinuxResources(memory=api.LinuxMemory(limit=api.OptionalInt64(value=9)))
    merge_update(stored, update, full=False)
    assert (stored.memory.limit.value, stored.memory.swap.value) == (9, 9)


def test_only_a_full_update_stores_what_cri_cannot_say():
    update = api.LinuxResources(memory=api.LinuxMemory(reservation=api.OptionalInt64(value=9)))
    for full in (False, True):
        stored = api.LinuxResources()
        merge_update(stored, update, full=full)
        assert stored.memory.reservation.value == (9 if full else 0)


def test_a_hugepage_limit_replaces_that_of_its_size():
    stored = api.LinuxResources(hugepage_limits=[api.HugepageLimit(page_size="2MB", limit=1)])
    update = api.LinuxResources(
        hugepage_limits=[
            api.HugepageLimit(page_size="2MB", limit=2),
            api.HugepageLimit(page_size="1GB", limit=3),
        ]
    )
    merge_update(stored, update, full=False)
    assert [(h.page_size, h.limit) for h in stored.hugepage_limits] == [("2MB", 2), ("1GB", 3)]
