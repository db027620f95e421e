"""One plugin per node: the lock of the directory, held by other processes and left by dead ones."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nri_claim2core.agent.instance import InstanceLock
from nri_claim2core.model.errors import HostError

HOLD = """
import sys
from nri_claim2core.agent.instance import InstanceLock
with InstanceLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_instance_is_told_who_holds_it_until_that_one_is_killed(tmp_path):
    run_dir = str(tmp_path / "run")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, run_dir],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(HostError) as refused, InstanceLock(run_dir):
            pass
        assert refused.value.code == "C2C-PLUGIN-01"
        assert f"(pid {holder.pid})" in refused.value.message
        holder.kill()
        holder.wait(10)
        with InstanceLock(run_dir):
            assert (tmp_path / "run" / "plugin.lock").read_text() == f"{os.getpid()}\n"
    with InstanceLock(run_dir):
        pass


def test_a_directory_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError) as refused, InstanceLock(str(tmp_path / "file")):
        pass
    assert refused.value.code == "C2C-PLUGIN-02"
    assert str(tmp_path / "file") in refused.value.message


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path):
    target = tmp_path / "precious"
    target.write_text("content")
    (tmp_path / "plugin.lock").symlink_to(target)
    with pytest.raises(HostError) as refused, InstanceLock(str(tmp_path)):
        pass
    assert refused.value.code == "C2C-PLUGIN-02"
    assert target.read_text() == "content"
