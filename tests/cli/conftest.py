"""Real maps for the commands that read them: the fixtures of tests/bpfmap."""

from tests.bpfmap.conftest import bpffs, cgroup, child, loaded, pins, writer

__all__ = ["bpffs", "cgroup", "child", "loaded", "pins", "writer"]
