"""Conditions are logged once, and a peer that varies its mistakes fills no log."""

from __future__ import annotations

import logging

from nri_claim2core.nri.once import OnceLogger


def test_a_condition_is_its_text_and_what_it_is_about(caplog):
    once = OnceLogger(logging.getLogger("once"), plugin="10-x")
    for about in ("a", "b", "a"):
        once.warn("odd", about, reason=about)
    once.fail("odd", KeyError("1"), "a")
    once.fail("odd", KeyError("2"), "a")
    once.fail("odd", ValueError("3"), "a")
    assert [(r.levelname, r.plugin) for r in caplog.records] == [
        ("WARNING", "10-x"),
        ("WARNING", "10-x"),
        ("ERROR", "10-x"),
        ("ERROR", "10-x"),
    ]


def test_the_number_of_conditions_is_bounded(caplog):
    once = OnceLogger(logging.getLogger("once"))
    for number in range(1000):
        once.warn("request refused", f"method {number}")
    assert len(caplog.records) == 64
