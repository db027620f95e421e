"""Updates of several plugins become one per container."""

import pytest

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.runtime.owners import ConflictError, Owners
from nri_claim2core.nri.runtime.updates import SelfUpdateError, UpdateRound, find_by_prefix


def update(key, cpus="", *, ignore=False, **resources):
    message = api.ContainerUpdate(container_id=key, ignore_failure=ignore)
    message.linux.resources.CopyFrom(api.LinuxResources(**resources))
    message.linux.resources.cpu.cpus = cpus
    return message


def test_naming_the_container_being_created_fails_the_creation():
    round_ = UpdateRound(Owners(), creating="new")
    with pytest.raises(SelfUpdateError) as caught:
        round_.take([update("new", "1")], "10-a")
    assert str(caught.value) == 'plugin "10-a" asked update of "new" during creation'


def test_fields_of_several_plugins_are_merged_in_order_of_asking():
    round_ = UpdateRound(Owners())
    round_.take([update("b", "1"), update("a", "2")], "10-a")
    round_.take([update("b", memory={"limit": {"value": 5}})], "20-b")
    others = round_.others()
    assert [u.container_id for u in others] == ["b", "a"]
    assert others[0].linux.resources.cpu.cpus == "1"
    assert others[0].linux.resources.memory.limit.value == 5


def test_a_conflict_voids_the_round_unless_it_may_be_ignored():
    round_ = UpdateRound(Owners())
    round_.take([update("a", "1")], "10-a")
    round_.take([update("a", "2", ignore=True)], "20-b")
    assert round_.others()[0].linux.resources.cpu.cpus == "1"
    with pytest.raises(ConflictError):
        round_.take([update("a", "2")], "30-c")


def test_failures_are_ignored_only_when_all_plugins_say_so():
    round_ = UpdateRound(Owners())
    round_.take([update("a", "1", ignore=True)], "10-a")
    round_.take([update("a", ignore=False)], "20-b")
    assert not round_.others()[0].ignore_failure


def test_the_container_being_updated_starts_from_the_request():
    requested = api.LinuxResources(cpu={"cpus": "0", "shares": {"value": 9}}, memory={})
    round_ = UpdateRound(Owners(), updating="me", requested=requested)
    assert round_.own() is None
    round_.take([update("me", "1"), update("other", "2")], "10-a")
    assert round_.own().cpu.cpus == "1"
    assert round_.own().cpu.shares.value == 9
    assert round_.requested.cpu.cpus == "1"  # what the next plugin sees
    assert [u.container_id for u in round_.others()] == ["other"]


def test_pids_in_an_update_are_lost():
    round_ = UpdateRound(Owners())
    round_.take([update("a", pids={"limit": 4})], "10-a")
    assert not round_.others()[0].linux.resources.HasField("pids")


def test_an_update_without_resources_is_only_a_name():
    round_ = UpdateRound(Owners())
    round_.take([api.ContainerUpdate(container_id="a")], "10-a")
    assert [u.container_id for u in round_.others()] == ["a"]


@pytest.mark.parametrize(
    ("text", "found"), [("", None), ("ab", None), ("abc", "abc"), ("abd", "abd1"), ("x", None)]
)
def test_ids_match_by_unique_prefix(text, found):
    assert find_by_prefix({"abc": 1, "abcd": 1, "abd1": 1}, text) == found
