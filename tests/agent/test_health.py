"""The rules of live and ready, apart from how they are asked."""

from __future__ import annotations

import pytest

from nri_claim2core.agent.health import Health, Probe


@pytest.fixture
def health() -> Health:
    return Health(live=["reader"], ready=["registered", "synchronized"])


def test_at_start_it_lives_and_is_not_ready(health: Health) -> None:
    assert health.report(Probe.LIVE)[0]
    is_good, parts = health.report(Probe.READY)
    assert not is_good
    assert [(p.name, p.is_good) for p in parts] == [
        ("reader", True),
        ("registered", False),
        ("synchronized", False),
    ]


def test_ready_needs_every_part_and_a_live_plugin(health: Health) -> None:
    health.set("registered", True, "with containerd 2.3.4")
    assert not health.report(Probe.READY)[0]
    health.set("synchronized", True, "12 containers")
    assert health.report(Probe.READY)[0]
    health.set("reader", False, "stuck")
    assert not health.report(Probe.READY)[0]
    assert not health.report(Probe.LIVE)[0]


def test_losing_readiness_is_no_reason_to_restart(health: Health) -> None:
    health.set("registered", False, "runtime gone")
    assert health.report(Probe.LIVE)[0]


def test_an_undeclared_part_is_our_bug(health: Health) -> None:
    with pytest.raises(KeyError):
        health.set("api-server", True, "")
