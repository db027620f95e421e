"""Which tests make up the tier: pytest's arguments.

Emulated starts take seconds, so of the tests that also run without a virtual machine only those
are here whose subject looks different on cgroup v2 or with several memory nodes. Any other test
can be run inside by name.
"""

from __future__ import annotations

TIER = (
    "e2e/test_vm_guest.py",
    "e2e/test_vm_cgroup_v2.py",
    "e2e/test_vm_memory_nodes.py",
)
