"""The kernel's word on sched_ext, as files of a captured root."""

from __future__ import annotations

import pytest

from nri_claim2core.host.sched_ext import ExtState, SchedExt, read_sched_ext
from nri_claim2core.model.errors import HostError
from tests.host.trees import Tree

DIRECTORY = "/sys/kernel/sched_ext"


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def kernel(tree, **files):
    for name, text in files.items():
        tree.write(f"{DIRECTORY}/{name}", text)
    return read_sched_ext(tree.root)


def test_a_kernel_without_it_is_absent(tree):
    assert kernel(tree) == SchedExt(state=ExtState.ABSENT)
    assert not kernel(tree).is_loaded


def test_an_idle_one_has_no_name(tree):
    found = kernel(tree, state="disabled\n", enable_seq="3\n", switch_all="0\n", nr_rejected="0\n")
    assert found == SchedExt(state=ExtState.DISABLED, enable_seq=3)
    assert not found.is_loaded


def test_a_loaded_one_has_a_name(tree):
    tree.write(f"{DIRECTORY}/root/ops", "goland\n")
    found = kernel(tree, state="enabled\n", enable_seq="4\n", switch_all="1\n", nr_rejected="2\n")
    assert (found.ops, found.switch_all, found.nr_rejected) == ("goland", True, 2)
    assert found.is_loaded


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"state": "bypassing\n"}, "bypassing"),
        ({"state": "enabled\n", "enable_seq": "-1\n"}, "enable_seq"),
        ({"state": "enabled\n", "enable_seq": "\u0663\n"}, "enable_seq"),
    ],
)
def test_what_it_never_said_is_an_error_that_names_the_file(tree, files, words):
    with pytest.raises(HostError, match=words) as caught:
        kernel(tree, **files)
    assert DIRECTORY in caught.value.path
