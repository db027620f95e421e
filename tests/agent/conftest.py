"""Real maps, cgroups and threads for the tests of the seeder."""

from tests.bpfmap.conftest import bpffs, cgroup, child, loaded, pins, writer

__all__ = ["bpffs", "cgroup", "child", "loaded", "pins", "writer"]
