"""Ownership rules and the runtime's own words for a conflict."""

import pytest

from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.runtime.owners import ConflictError, Owners, removed_key


def test_the_second_plugin_loses_with_the_text_go_uses():
    owners = Owners()
    owners.claim("c", api.CPUSetCPUs, "10-a")
    with pytest.raises(ConflictError) as caught:
        owners.claim("c", api.CPUSetCPUs, "20-b")
    # Recorded from a Go runtime with NRI 0.12.
    assert str(caught.value) == 'plugins "20-b" and "10-a" both tried to set CPUSetCPUs'


def test_words_before_0_10():
    owners = Owners(by_field=False)
    owners.claim("c", api.CPUSetCPUs, "10-a")
    owners.claim("c", api.Env, "10-a", "KEY")
    with pytest.raises(ConflictError, match=r"both tried to set CPU pinning$"):
        owners.claim("c", api.CPUSetCPUs, "20-b")
    with pytest.raises(ConflictError, match=r"both tried to set env KEY$"):
        owners.claim("c", api.Env, "20-b", "KEY")


def test_the_same_plugin_conflicts_with_itself():
    owners = Owners()
    owners.claim("c", api.MemLimit, "10-a")
    with pytest.raises(ConflictError, match='"10-a" and "10-a"'):
        owners.claim("c", api.MemLimit, "10-a")


def test_keys_and_containers_are_apart():
    owners = Owners()
    owners.claim("c", api.Env, "10-a", "A")
    owners.claim("c", api.Env, "20-b", "B")
    owners.claim("d", api.Env, "20-b", "A")
    with pytest.raises(ConflictError, match=r"Env A$"):
        owners.claim("c", api.Env, "20-b", "A")


def test_a_removal_lets_only_its_plugin_through():
    owners = Owners()
    owners.claim("c", api.Mounts, "10-a", "/x")
    owners.clear("c", api.Mounts, "20-b", "/x")
    with pytest.raises(ConflictError, match='"30-c" and "20-b"'):
        owners.claim("c", api.Mounts, "30-c", "/x")
    assert owners.message().owners["c"].compound[api.Mounts].owners["/x"] == "-20-b"
    owners.claim("c", api.Mounts, "20-b", "/x")
    assert owners.message().owners["c"].compound[api.Mounts].owners["/x"] == "20-b"


def test_a_removal_before_0_10_forgets_the_owner():
    owners = Owners(by_field=False)
    owners.claim("c", api.Mounts, "10-a", "/x")
    owners.clear("c", api.Mounts, "20-b", "/x")
    owners.claim("c", api.Mounts, "30-c", "/x")


def test_hooks_accumulate():
    owners = Owners()
    owners.add_hooks("c", "10-a")
    owners.add_hooks("c", "20-b")
    assert owners.message().owners["c"].simple[api.OciHooks] == "10-a,20-b"


@pytest.mark.parametrize(
    ("key", "removed"), [("", None), ("a", None), ("-a", "a"), ("-", ""), ("--a", "-a")]
)
def test_removal_markers(key, removed):
    assert removed_key(key) == removed
