"""What the connection's course means for readiness, metrics and the log."""

from __future__ import annotations

import logging

import pytest

from nri_claim2core.agent.health import Probe
from nri_claim2core.agent.metrics import Metrics
from nri_claim2core.agent.watch import REPEAT_S, ConnectionWatch
from nri_claim2core.model.errors import PeerError
from nri_claim2core.nri.dispatch import Registration

ATTEMPTS = "claim2core_nri_registrations_total"


class Notifier:
    def __init__(self):
        self.sent = []

    def ready(self, _status):
        self.sent.append("ready")

    def status(self, text):
        self.sent.append(text)


class World:
    def __init__(self):
        self.now = 1000.0
        self.nr_ready = 0
        self.notifier = Notifier()
        self.metrics = Metrics()
        self.watch = ConnectionWatch(
            self.metrics,
            on_ready=self._ready,
            handler_deadline=lambda timeout_ms: timeout_ms / 4000,
            notifier=self.notifier,
            clock=lambda: self.now,
        )

    def _ready(self):
        self.nr_ready += 1

    def register(self):
        self.watch.on_registered(
            Registration(
                runtime_name="containerd",
                runtime_version="v2.4.0",
                nri_version=None,
                registration_timeout_ms=5000,
                request_timeout_ms=2000,
                events=0x7FF,
            )
        )
        self.watch.on_synchronized()


@pytest.fixture
def world(caplog):
    caplog.set_level(logging.INFO)
    return World()


def test_ready_from_synchronize_to_the_end_of_the_connection(world):
    watch = world.watch
    assert not watch.health.report(Probe.READY)[0]
    world.register()
    assert watch.health.report(Probe.READY)[0]
    assert (world.nr_ready, world.notifier.sent) == (1, ["ready"])
    assert world.metrics.value("claim2core_nri_connected") == 1
    assert world.metrics.value("claim2core_nri_handler_deadline_seconds") == 0.5
    watch.on_lost(PeerError("the runtime closed the connection"))
    assert not watch.health.report(Probe.READY)[0]
    # A restart would bring no runtime back.
    assert watch.health.report(Probe.LIVE)[0]
    assert world.metrics.value("claim2core_nri_connected") == 0
    assert world.metrics.value("claim2core_nri_connections_lost_total") == 1
    assert "the runtime closed the connection" in world.notifier.sent[-1]


def test_a_registration_that_failed_is_no_connection_lost(world):
    world.watch.on_lost(PeerError("refused"))
    assert world.metrics.value("claim2core_nri_connections_lost_total") == 0
    assert world.metrics.value(ATTEMPTS, "failure") == 1


def test_an_unchanged_failure_is_said_once_a_minute(world, caplog):
    def fail(reason, after_s):
        world.now += after_s
        world.watch.on_unreachable(PeerError(reason))

    fail("no socket", 0)
    fail("no socket", REPEAT_S - 1)
    fail("no socket", 1)
    fail("not permitted", 1)
    fail("no socket", 1)
    said = [record.reason for record in caplog.records]
    assert said == ["no socket", "no socket", "not permitted", "no socket"]
    assert world.metrics.value(ATTEMPTS, "failure") == 5


def test_a_reload_before_the_first_registration_does_not_say_ready(world):
    world.watch.reloaded()
    assert world.notifier.sent == []
    world.register()
    world.watch.reloaded()
    assert world.notifier.sent == ["ready", "ready"]


def test_every_end_of_a_request_is_counted(world):
    expected = {
        "ok": "ok",
        "unhandled": "ok",
        "refused": "refused",
        "error": "failed",
        "unreadable": "failed",
        "deadline": "deadline",
    }
    for result, counted in expected.items():
        before = world.metrics.value("claim2core_nri_requests_total", "CreateContainer", counted)
        world.watch.on_request("CreateContainer", 0.001, result)
        after = world.metrics.value("claim2core_nri_requests_total", "CreateContainer", counted)
        assert after == before + 1, result
    assert world.metrics.value("claim2core_nri_budget_exhausted_total") == 1
