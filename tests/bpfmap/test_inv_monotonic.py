"""INV-MONOTONIC: the generation never decreases within a boot, whoever writes."""

from __future__ import annotations

import subprocess
import sys
from itertools import chain

import pytest

from nri_claim2core.bpfmap import mutate, readback
from nri_claim2core.bpfmap.loader import load
from nri_claim2core.bpfmap.mutate import Writer
from nri_claim2core.model.errors import StaleError
from tests.bpfmap.seeds import seed_cgroup

pytestmark = pytest.mark.maps

# Takes the token and writes, as often as told; prints every generation it was given.
_CONTENDER = """
import sys
from nri_claim2core.bpfmap import mutate, requests
from nri_claim2core.bpfmap.abi import CgroupId
from nri_claim2core.bpfmap.errors import StaleWriterError
from nri_claim2core.bpfmap.loader import load
from nri_claim2core.bpfmap.rows import CgroupRow
mutate.BUSY_ATTEMPTS = 100_000
writer = mutate.Writer(load(sys.argv[1]))
put = [requests.put_cgroup(CgroupRow(cgroup_id=CgroupId(int(sys.argv[2]))))] * 16
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[3])):
    print(writer.take())
    try:
        for outcome in writer.put(*put):
            print(outcome.generation)
    except StaleWriterError:
        pass
"""


def test_writers_that_fight_never_share_or_lower_a_generation(loaded, pins, cgroup):
    words = [sys.executable, "-c", _CONTENDER, pins, str(cgroup.stat().st_ino), "300"]
    contenders = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for each in contenders:
        assert each.stdout.readline() == "ready\n"
    for each in contenders:
        each.stdin.write("go\n")
        each.stdin.flush()
    printed = [[int(line) for line in each.communicate()[0].split()] for each in contenders]
    assert [each.returncode for each in contenders] == [0, 0, 0]
    for generations in printed:
        assert generations == sorted(generations)
        assert len(generations) > 300
    everything = sorted(chain.from_iterable(printed))
    assert len(everything) == len(set(everything))
    control = readback.read_control(loaded.maps)
    assert control.generation == everything[-1]
    assert control.busy_ns == 0


def test_the_counter_goes_on_after_a_restart(pins, cgroup):
    seen = []
    for _ in range(3):
        loaded = load(pins)
        writer = Writer(loaded)
        seen.append(writer.take())
        seen.append(writer.put(seed_cgroup(cgroup))[0].generation)
        writer.close()
        loaded.close()
    assert seen == sorted(set(seen))


def test_the_floor_only_rises_and_not_above_the_counter(loaded, writer):
    at = readback.read_control(loaded.maps).generation
    writer.raise_floor(at)
    with pytest.raises(StaleError):
        writer.raise_floor(at - 1)
    with pytest.raises(mutate.BpfError):
        writer.raise_floor(at + 1)
    assert readback.read_control(loaded.maps).floor == at
