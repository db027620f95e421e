"""Kubelet's CPU manager state: policy, pool, exclusive CPUs; missing is not broken."""

from __future__ import annotations

import re

import pytest

from nri_claim2core.host.cpu_manager import CpuManagerReader, parse_cpu_manager
from nri_claim2core.model.cpuset import CpuSet
from tests.host.trees import POD_A, Clock, Tree

PATH = "/var/lib/kubelet/cpu_manager_state"
STATIC = (
    f'{{"policyName":"static","defaultCpuSet":"0,2-5","entries":{{"{POD_A}":'
    '{"main":"1","side":"6-7"},"p2":{"main":"8"}},"checksum":1353318690}'
)
NONE = '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'


def test_static_policy(tmp_path):
    tree = Tree(tmp_path)
    tree.write(PATH, STATIC)
    state = CpuManagerReader(tree.root, clock=Clock()).read()
    assert (state.policy, state.pins, state.readable) == ("static", True, True)
    assert state.default_cpus == CpuSet([0, 2, 3, 4, 5])
    assert state.maybe_cpus_of(POD_A, "side") == CpuSet([6, 7])
    assert state.maybe_cpus_of(POD_A, "other") is None
    assert state.maybe_cpus_of("other", "main") is None
    assert state.exclusive == CpuSet([1, 6, 7, 8])


def test_none_policy(tmp_path):
    state = parse_cpu_manager(NONE.encode())
    assert (state.policy, state.pins, dict(state.entries)) == ("none", False, {})


def test_missing_is_none(tmp_path):
    assert CpuManagerReader(str(tmp_path), clock=Clock()).read() is None


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "Expecting value"),
        (STATIC[:50].encode(), "Unterminated|Expecting"),
        (b"\xff", "utf-8"),
        (b"[]", "object was expected"),
        (b"{}", "no text in policyName"),
        (NONE.replace('""', '"3-0"').encode(), "descends"),
        (STATIC.replace('"6-7"', '"6-"').encode(), "not a number"),
        (STATIC.replace('"6-7"', "6").encode(), "container side are not a text"),
        (STATIC.replace('{"main":"8"}', "[]").encode(), "object was expected"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_broken_is_said(data, problem):
    state = parse_cpu_manager(data)
    assert (state.readable, state.pins, dict(state.entries)) == (False, False, {})
    assert re.search(problem, state.problem)


def test_unreadable_is_not_missing(tmp_path):
    tree = Tree(tmp_path)
    tree.directory(PATH)
    state = CpuManagerReader(tree.root, clock=Clock()).read()
    assert (state.readable, "directory" in state.problem) == (False, True)
