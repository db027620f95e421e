"""The factor on the deadlines of a bed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nri_claim2core.lab.errors import LabError
from nri_claim2core.lab.patience import VARIABLE, read_scale


@pytest.mark.parametrize(
    ("text", "scale"), [(None, 1), ("", 1), ("1", 1), ("10", 10), ("2.5", 2.5)]
)
def test_scale(text, scale):
    assert read_scale(text) == scale


@pytest.mark.parametrize("text", ["0", "-3", "0.5", "inf", "nan", "ten"])
def test_what_is_no_scale(text):
    with pytest.raises(LabError, match=VARIABLE):
        read_scale(text)


def test_deadlines_follow_the_environment():
    code = "from nri_claim2core.lab import containerd; print(containerd._READY_DEADLINE_S)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, VARIABLE: "10"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) == 300
