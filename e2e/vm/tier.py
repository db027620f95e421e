"""Which tests make up the tier.

Emulated starts take seconds, so of the tests that also run without a virtual machine only those
are here whose subject looks different on cgroup v2 or with several memory nodes. Any other test
can be run inside by name.
"""

from __future__ import annotations

TESTS = (
    "e2e/test_vm_guest.py",
    "e2e/test_vm_cgroup_v2.py",
    "e2e/test_vm_memory_nodes.py",
    "e2e/test_vm_scheduler.py",
    "e2e/test_vm_seed.py",
    "e2e/test_vm_units.py",
    "tests/host/test_cgroups.py::test_real_cgroup[v2]",
    # The bed finds and removes its cgroups in the one tree.
    "e2e/test_bed.py::test_cpuset_update_reaches_the_process",
    "e2e/test_bed.py::test_close_after_kill_leaves_nothing",
    # Memory nodes that somebody set, or that reserved CPUs left open.
    "e2e/test_plugin_envelope.py::test_memory_nodes_are_those_of_the_claimed_cpus",
    "e2e/test_plugin_envelope.py::test_memory_nodes_that_were_set_hold",
    "e2e/test_plugin_envelope.py::test_reserved_namespace_keeps_its_memory_nodes",
    "e2e/test_plugin_envelope.py::test_kubelet_can_move_what_has_no_claim",
    "e2e/test_plugin_envelope.py::test_restarted_container_is_confined_again",
    # Its own cpuset known again, from what the runtime recorded on this hierarchy.
    "e2e/test_plugin_restart.py::test_running_containers_stay_right_without_the_plugin_and_after_its_return",
    "e2e/test_plugin_restart.py::test_runtime_restart",
    # More CPUs than this machine's two: a claim's rest is not everything.
    "e2e/test_plugin_trust.py::test_claim_with_one_cpu_that_does_not_exist_runs_on_the_others",
    "e2e/test_plugin_first_instruction.py::test_every_first_mask_is_the_claim",
)
"""Node ids."""

_OWN = "(test_vm and not fifty) or test_real_cgroup"
_ONE_SERIES = "containerd-2.1 and not 200"

TIER = (*TESTS, "-k", f"{_OWN} or ({_ONE_SERIES})")
"""Arguments of pytest. What is not the tier's own runs with one containerd - the cgroups are its
subject, and what differs between releases is tested on this machine - and without 200 starts."""
