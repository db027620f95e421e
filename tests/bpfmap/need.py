"""What the tests on the real kernel need; each missing thing skips by name.

Where CLAIM2CORE_REQUIRE lists `maps`, a missing thing fails instead.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from nri_claim2core.bpfmap.loader import OBJECT

REQUIREMENT = "maps"


def skip_or_fail(reason: str) -> None:
    required = [name.strip() for name in os.environ.get("CLAIM2CORE_REQUIRE", "").split(",")]
    if REQUIREMENT in required:
        pytest.fail(f"CLAIM2CORE_REQUIRE names {REQUIREMENT}: {reason}", pytrace=False)
    pytest.skip(reason)


def need_object() -> str:
    if not Path(OBJECT).exists():
        skip_or_fail(f"no {Path(OBJECT).name}: run make bpf")
    return OBJECT


def need_bpftool() -> str:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = os.environ.get("CLAIM2CORE_CACHE") or f"{cache}/nri-claim2core"
    found = shutil.which("bpftool") or next(map(str, Path(cache).glob("bpftool/*/bin/bpftool")), "")
    if not found:
        skip_or_fail("no bpftool: run e2e/setup/bpf.sh")
    return found


def need_compiler() -> str:
    found = shutil.which("cc") or ""
    if not found:
        skip_or_fail("no C compiler (cc) on PATH")
    return found


def need_kernel() -> None:
    need_object()
    if os.geteuid() != 0:
        skip_or_fail("loading BPF objects needs root")
    if not Path("/sys/kernel/btf/vmlinux").exists():
        skip_or_fail("this kernel has no BTF")
