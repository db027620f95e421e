"""How a state is cut into parts; numbers by hand from the rule of NRI's Go adaptation."""

import pytest

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.runtime.sync import SplitError, Splitter

LIMIT = 4 << 20


def make(nr_pods, nr_containers, **options):
    pods = [api.PodSandbox(id=f"p{i}") for i in range(nr_pods)]
    containers = [api.Container(id=f"c{i}") for i in range(nr_containers)]
    return Splitter(pods, containers, **options)


def shape(part):
    return len(part.pods), len(part.containers), part.more


def test_a_small_state_is_one_part():
    assert shape(make(2, 3).part()) == (2, 3, False)
    assert shape(make(0, 0).part()) == (0, 0, False)


def test_parts_scale_by_limit_over_length():
    splitter = make(100, 200)
    splitter.shrink(10 * LIMIT, LIMIT)  # factor 0.1
    shapes = []
    while True:
        part = splitter.part()
        shapes.append(shape(part))
        if not part.more:
            break
        splitter.advance()
    assert shapes == [(10, 20, True)] * 9 + [(10, 20, False)]


def test_the_factor_is_at_most_0_9():
    splitter = make(100, 200)
    splitter.shrink(LIMIT + 1, LIMIT)
    assert shape(splitter.part()) == (90, 180, True)


def test_few_objects_become_four_of_each():
    splitter = make(10, 12)
    splitter.shrink(10 * LIMIT, LIMIT)  # 1 + 1 < 8
    assert shape(splitter.part()) == (4, 4, True)


def test_one_pod_with_many_fat_containers_sends_empty_parts_for_ever():
    splitter = make(1, 200, keeps_empty_parts=True)
    splitter.shrink(10_000_000, LIMIT)  # factor 0.419: no pod, 83 containers
    shapes = []
    for _ in range(6):
        shapes.append(shape(splitter.part()))
        splitter.advance()
    assert shapes == [(0, 83, True), (0, 83, True), (0, 34, True)] + [(0, 0, True)] * 3


def test_without_the_quirk_the_same_state_arrives():
    splitter = make(1, 200)
    splitter.shrink(10_000_000, LIMIT)
    shapes = [shape(splitter.part())]
    while shapes[-1][2]:
        splitter.advance()
        shapes.append(shape(splitter.part()))
    assert shapes == [(1, 83, True), (0, 83, True), (0, 34, False)]


def test_what_cannot_be_cut_is_refused():
    with pytest.raises(SplitError, match="failed to synchronize plugin with split messages"):
        make(4, 4).shrink(10 * LIMIT, LIMIT)
