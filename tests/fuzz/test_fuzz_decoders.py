"""The fuzz target on generated inputs always, and coverage-guided where atheris is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nri_claim2core.nri.connection import Connection, Role
from nri_claim2core.nri.events_table import PLUGIN_SERVICE, RUNTIME_SERVICE
from tests.fuzz.fuzz_decoders import one_input

RUNS = 5_000

pieces = st.lists(
    st.one_of(
        st.binary(max_size=12),
        st.sampled_from(
            [bytes.fromhex(text) for text in ("00000001", "00000002", "0000000a", "0100", "0200")]
        ),
    ),
    max_size=20,
).map(b"".join)


@settings(max_examples=300, deadline=None)
@given(head=st.binary(min_size=2, max_size=2), rest=st.one_of(st.binary(max_size=300), pieces))
def test_any_bytes(head, rest):
    one_input(head + rest)


def seeds():
    plugin, runtime = Connection(Role.PLUGIN), Connection(Role.RUNTIME)
    yield b"\x00\x07" + plugin.call(RUNTIME_SERVICE, "RegisterPlugin", b"\x0a\x01x")[1]
    yield b"\x01\x05" + runtime.call(PLUGIN_SERVICE, "CreateContainer", b"\x12\x00")[1]
    yield b"\x01\x3c" + runtime.call(PLUGIN_SERVICE, "Synchronize", bytes(600))[1]
    yield b"\x03\x01" + b"\x05\x00\x01" * 4
    for seed in ("\x01", "\x00"):
        yield seed.encode() + b"\x09" + b"\x00\x00\x00\x01" * 6


def test_seeds():
    for seed in seeds():
        one_input(seed)


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="needs atheris")
def test_guided_by_coverage(tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds()):
        (corpus / str(number)).write_bytes(seed)
    done = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("fuzz_decoders.py")),
            f"-runs={RUNS}",
            "-max_len=2000",
            "-rss_limit_mb=512",
            "-timeout=10",
            f"-artifact_prefix={tmp_path}/",
            str(corpus),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"Done {RUNS} runs" in done.stderr
