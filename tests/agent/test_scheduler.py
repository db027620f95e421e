"""The scheduler role's steps, with what it finds put in its way.

What the kernel really does is shown in the virtual machine; here are sequences of failures,
and what is seen without sched_ext.
"""

from __future__ import annotations

import itertools
import logging

import pytest

from nri_claim2core.agent import scheduler
from nri_claim2core.agent.scheduler import Phase, SchedulerRole, Situation, look
from nri_claim2core.bpfmap.errors import LoadError, MapsMissingError, SchedulerTakenError
from nri_claim2core.bpfmap.struct_ops import ExitRecord
from nri_claim2core.host.sched_ext import ExtState, SchedExt
from nri_claim2core.model.errors import HostError

STALLED = ExitRecord(
    kind=1026, code=0, reason="runnable task stall", message="sh[7] failed", dump="CPU 0 ..."
)
HOTPLUG = ExitRecord(kind=66, code=1 << 48 | 1 << 32, reason="unregistered", message="", dump="")


class World:
    """What is found next, whether attaching works, and the time."""

    def __init__(self, monkeypatch, tmp_path):
        self.now = 1000.0
        self.found = Situation(phase=Phase.STOPPED, kernel=SchedExt(state=ExtState.DISABLED))
        self.error = None
        self.loads = []
        monkeypatch.setattr(scheduler, "look", lambda *_: self.found)
        monkeypatch.setattr(scheduler, "load", self._load)
        self.run_dir = tmp_path
        self.role = SchedulerRole(run_dir=str(tmp_path), clock=lambda: self.now)

    def _load(self, *_):
        self.loads.append(self.now)
        if self.error:
            raise self.error

    def finds(self, phase, exit_record=None):
        self.found = Situation(
            phase=phase, kernel=SchedExt(state=ExtState.DISABLED), exit=exit_record
        )

    def attempts(self, seconds):
        """When the role tried to attach, in seconds from now, looking once a second."""
        start, self.loads = self.now, []
        for _ in range(seconds):
            self.role.step()
            self.now += 1
        return [at - start for at in self.loads]


@pytest.fixture
def world(monkeypatch, tmp_path):
    return World(monkeypatch, tmp_path)


def test_a_stopped_one_is_attached_at_once(world):
    assert world.attempts(1) == [0]


@pytest.mark.parametrize("phase", [Phase.MAPS_ONLY, Phase.NO_MAPS, Phase.FOREIGN, Phase.RUNNING])
def test_nothing_is_done_where_nothing_can_or_has_to_be(world, phase):
    world.finds(phase)
    assert world.attempts(10) == []


def test_one_that_cannot_be_attached_is_tried_less_and_less_often(world):
    world.error = LoadError("the verifier refused it")
    # Pauses of 1, 2, 4, 8, 16 seconds.
    assert world.attempts(32) == [0, 1, 3, 7, 15, 31]


def test_pauses_have_a_limit(world):
    world.error = LoadError("the verifier refused it")
    attempts = world.attempts(2000)
    gaps = [after - before for before, after in itertools.pairwise(attempts)]
    assert gaps[-3:] == [300, 300, 300]


def test_an_ejection_is_followed_by_a_pause_and_its_dump_is_kept(world):
    world.finds(Phase.EJECTED, STALLED)
    assert world.attempts(3)[:1] == [1]
    text = (world.run_dir / "scheduler-exit.txt").read_text()
    assert text.startswith("a task was not run in time: sh[7] failed\n")
    assert "CPU 0 ..." in text


def test_hotplug_costs_no_pause(world):
    world.finds(Phase.EJECTED, HOTPLUG)
    assert world.attempts(1) == [0]


def test_a_calm_time_forgives_earlier_failures(world):
    world.error = LoadError("not yet")
    world.attempts(20)
    world.error = None
    world.attempts(20)
    world.finds(Phase.RUNNING)
    world.attempts(700)
    world.finds(Phase.EJECTED, STALLED)
    assert world.attempts(3)[:1] == [1]


def test_states_and_failures_are_said_once(world, caplog):
    caplog.set_level(logging.INFO)
    world.error = SchedulerTakenError("another sched_ext scheduler is attached")
    world.attempts(40)
    said = [record for record in caplog.records if record.message == "scheduler"]
    assert [(each.levelname, hasattr(each, "state")) for each in said] == [
        ("WARNING", True),
        ("ERROR", False),
    ]
    assert "C2C-BPF-11" in said[1].failure


def test_a_dump_that_cannot_be_kept_stops_nothing(world):
    (world.run_dir / "scheduler-exit.txt").mkdir()
    world.finds(Phase.EJECTED, STALLED)
    assert world.attempts(2) == [1]


@pytest.mark.parametrize(
    ("phase", "error", "words"),
    [
        (Phase.MAPS_ONLY, HostError, "no sched_ext"),
        (Phase.NO_MAPS, MapsMissingError, "no maps at"),
        (Phase.FOREIGN, SchedulerTakenError, "goland"),
    ],
)
def test_loading_once_says_why_not(monkeypatch, phase, error, words):
    found = Situation(
        phase=phase,
        kernel=SchedExt(state=ExtState.ENABLED, ops="goland"),
        maps_problem="no maps at /x",
    )
    monkeypatch.setattr(scheduler, "look", lambda *_: found)
    with pytest.raises(error, match=words):
        scheduler.load("/x")


def test_a_captured_node_without_sched_ext_is_maps_only(tmp_path):
    assert look(str(tmp_path / "pins"), str(tmp_path)).phase is Phase.MAPS_ONLY


def test_exit_kinds_have_words():
    assert str(HOTPLUG) == "unregistered by the kernel: unregistered"
    assert (HOTPLUG.wants_restart, HOTPLUG.is_failure) == (True, False)
    assert (STALLED.wants_restart, STALLED.is_failure) == (False, True)
