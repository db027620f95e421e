"""pytest plugin of the guest: a test that fails leaves the logs of its node for the host.

Beds are removed at the end of a test or module, so what they hold at the moment of the failure
is copied to /c2c/out/logs/<test>: logs, configurations, output of containers.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

OUT = Path("/c2c/out/logs")
_KEPT = ("*.log", "*.toml", "*.yaml", "pods/**/*.log", "pods/**/[0-9]*")
_UNFIT = re.compile(r"[^A-Za-z0-9_.=-]+")


def keep(test: str, beds: Path, out: Path) -> None:
    """Copy the logs of every bed below `beds` to a directory of `out` named for the test."""
    target = out / _UNFIT.sub("-", test)
    for pattern in _KEPT:
        for found in beds.glob(f"c2c-*/{pattern}"):
            if found.is_file():
                copy = target / found.relative_to(beds)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(found, copy)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Look at the outcome of each phase of a test."""
    report = yield
    if report.failed:
        keep(item.nodeid, Path(tempfile.gettempdir()), OUT)
    return report


def pytest_keyboard_interrupt() -> None:
    """The guest's time is up; what runs now is what hung."""
    keep("interrupted", Path(tempfile.gettempdir()), OUT)
