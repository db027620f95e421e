"""A container runs where its claims say, from its first instruction on and whatever happens.

The claims here hold; what else can be wrong with them is in test_plugin_trust. On a machine of
two CPUs the union of two claims is everything: there the runtime's own record of the cpuset
and the shares in the kernel tell "confined to both" from "not confined".
"""

from __future__ import annotations

import uuid

import pytest

from e2e.plugin_node import HAS_CPUS_0_AND_1, NEEDS_CPUS_0_AND_1, all_cpus
from nri_claim2core.lab import node as labnode
from nri_claim2core.lab.cri import ContainerState, Resources

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(not HAS_CPUS_0_AND_1, reason=NEEDS_CPUS_0_AND_1),
]

NO_REQUEST_SHARES = 2
"""What kubelet sends for a container without a CPU request, and the kernel's minimum."""


@pytest.mark.parametrize("cpus", ["0", "1"])
def test_claim_holds_at_the_first_instruction(node, cpus):
    _, workload = node.run_claiming(cpus)
    assert workload.first.cpus == {int(cpus)}
    assert workload.first.cpu == int(cpus)
    assert node.kernel(workload).cpus == {int(cpus)}


def test_memory_nodes_are_those_of_the_claimed_cpus(node):
    _, workload = node.run_claiming("1")
    # The kernel's own word for the CPU's node: a directory link below the CPU.
    near = node.memory_node_of(1)
    assert node.spec_cpu(workload)["mems"] == str(near)
    assert workload.first.mems == {near}
    assert node.kernel(workload).mems == {near}


def test_claim_without_a_request_weighs_its_cpus(node):
    _, workload = node.run_claiming("1")
    assert node.limits(workload).shares == 1024


def test_two_containers_of_one_claim(node):
    claim = node.claim("1")
    pod = node.pod(claim)
    first = node.run(pod, claim, name="first")
    second = node.run(pod, claim, name="second")
    for workload in (first, second):
        assert workload.first.cpus == {1}
        assert node.kernel(workload).cpus == {1}
    node.bed.cri.stop(first.id)
    assert node.kernel(second).cpus == {1}


def test_two_claims_are_their_union(node):
    one, other = node.claim("0"), node.claim("1")
    workload = node.run(node.pod(one, other), one, other)
    assert workload.first.cpus == {0, 1}
    assert node.kernel(workload).cpus == {0, 1}
    assert node.spec_cpu(workload)["cpus"] == "0-1"
    assert node.limits(workload).shares == 2048


def test_container_without_a_claim_is_untouched(node):
    claim = node.claim("1")
    pod = node.pod(claim)
    claiming = node.run(pod, claim, name="claiming")
    other = node.run(pod, name="other")
    assert other.first.cpus == all_cpus()
    assert not node.spec_cpu(other).get("cpus")
    assert node.limits(other).shares == NO_REQUEST_SHARES
    assert claiming.first.cpus == {1}


def test_kubelet_cannot_move_it(node):
    _, workload = node.run_claiming("1")
    node.update(workload, cpuset_cpus="0")
    assert node.kernel(workload).cpus == {1}
    assert node.spec_cpu(workload)["cpus"] == "1"
    # What the loop of the static policy does next.
    node.update(workload, cpuset_cpus="0-1")
    assert node.kernel(workload).cpus == {1}


def test_kubelet_can_move_what_has_no_claim(node):
    workload = node.run(node.pod())
    node.update(workload, cpuset_cpus="0")
    assert node.kernel(workload).cpus == {0}


def test_update_of_a_container_that_is_not_started_keeps_its_claim(node):
    claim = node.claim("1")
    ref = node.create(node.pod(claim), claim)
    node.update(ref, cpuset_cpus="0")
    workload = node.start(ref)
    assert workload.first.cpus == {1}


def test_resize_passes_and_the_cpuset_stays(node):
    _, workload = node.run_claiming("1", resources=Resources(cpu_shares=512))
    assert node.limits(workload).shares == 512
    # A resize sends shares, quota and period and no cpuset.
    node.update(workload, cpu_shares=768, cpu_quota=75_000, cpu_period=100_000)
    limits = node.limits(workload)
    assert (limits.shares, limits.quota_us) == (768, 75_000)
    assert node.kernel(workload).cpus == {1}


def test_zeros_of_an_update_change_nothing(node):
    _, workload = node.run_claiming("1", resources=Resources(cpu_shares=512, cpu_quota=60_000))
    before = node.limits(workload)
    assert (before.shares, before.quota_us) == (512, 60_000)
    # Only memory: NRI sees shares, quota and period present and zero.
    node.update(workload, memory_limit_bytes=64 << 20)
    assert node.limits(workload) == before
    assert node.kernel(workload).cpus == {1}


def test_request_keeps_its_own_shares(node):
    claim = node.claim("1")
    pod = node.pod(claim)
    with_request = node.run(pod, claim, name="request", resources=Resources(cpu_shares=512))
    claim_only = node.run(pod, claim, name="only")
    assert node.limits(with_request).shares == 512
    assert node.limits(claim_only).shares == 1024
    # Nobody manages a shared set here: the claim is all there is.
    assert with_request.first.cpus == claim_only.first.cpus == {1}


def test_restarted_container_is_confined_again(node):
    claim = node.claim("1")
    pod = node.pod(claim)
    before = node.run(pod, claim, attempt=0)
    node.bed.cri.stop(before.id)
    after = node.run(pod, claim, attempt=1)
    assert after.id != before.id
    assert after.first.cpus == {1}
    # The late removal of the old one says nothing about the new one.
    node.bed.cri.remove(before.id)
    node.update(after, cpuset_cpus="0")
    assert node.kernel(after).cpus == {1}
    assert node.entry(before) is None


def test_init_container_and_application_share_a_claim(node):
    claim, own = node.claim("1"), node.claim("0")
    pod = node.pod(claim, own)
    init = node.run(pod, claim, name="init")
    assert init.first.cpus == {1}
    node.bed.cri.stop(init.id)
    assert node.bed.cri.status(init.id).state is ContainerState.EXITED
    application = node.run(pod, claim, name="application")
    sidecar = node.run(pod, own, name="sidecar")
    assert application.first.cpus == {1}
    assert sidecar.first.cpus == {0}


def test_spec_of_nri_plugins(node):
    uid = str(uuid.uuid4())
    labnode.write_nri_plugins_spec(node.bed.paths.cdi_dir, uid, "1", results=2)
    devices = [labnode.nri_plugins_device(uid, index) for index in range(2)]
    claim = node.prepared(uid, "1", *devices)
    workload = node.run(node.pod(claim), devices=devices)
    assert workload.first.cpus == {1}


def test_single_file_of_all_claims(node):
    uids = [str(uuid.uuid4()) for _ in range(2)]
    labnode.write_dra_cpu_v01_spec(node.bed.paths.cdi_dir, {uids[0]: "0", uids[1]: "1"})
    claims = [
        node.claim(cpus, uid=uid, write_spec=False)
        for uid, cpus in zip(uids, ("0", "1"), strict=True)
    ]
    pod = node.pod(*claims)
    for claim in claims:
        workload = node.run(pod, claim, name=f"cpu-{claim.cpus}")
        assert workload.first.cpus == {int(claim.cpus)}


def test_exclusive_cpus_of_the_static_policy_stay_with_the_container(node):
    """Kubelet's value arrives with the creation; it is no other plugin, so the cpuset is ours."""
    claim = node.claim("1")
    pod = node.pod(claim)
    labnode.write_cpu_manager_state(
        node.bed.paths.kubelet_dir,
        policy="static",
        default_cpus="1",
        entries={pod.uid: {"work": "0"}},
    )
    asked = Resources(cpu_shares=1024, cpuset_cpus="0")
    workload = node.run(pod, claim, resources=asked)
    assert workload.first.cpus == {0, 1}
    assert node.spec_cpu(workload)["cpus"] == "0-1"
    # Its loop tries to put its own value back.
    node.update(workload, cpuset_cpus="0")
    assert node.kernel(workload).cpus == {0, 1}


def test_shared_cpus_of_the_static_policy_are_not_exclusive(node):
    claim = node.claim("1")
    pod = node.pod(claim)
    labnode.write_cpu_manager_state(node.bed.paths.kubelet_dir, policy="static", default_cpus="0-1")
    asked = Resources(cpu_shares=2, cpuset_cpus="0-1")
    workload = node.run(pod, claim, resources=asked)
    assert workload.first.cpus == {1}
    assert node.kernel(workload).cpus == {1}


def test_memory_nodes_that_were_set_hold(node):
    claim = node.claim("1")
    asked = Resources(cpu_shares=2, cpuset_mems=str(node.memory_node_of(1)))
    workload = node.run(node.pod(claim), claim, resources=asked)
    assert node.spec_cpu(workload)["mems"] == str(node.memory_node_of(1))
    assert workload.first.cpus == {1}


@pytest.mark.parametrize("key", ["", "/container.work"], ids=["pod", "container"])
def test_opted_out_container_is_left_as_it_came(node, key):
    claim = node.claim("1")
    annotations = {f"cpu.preserve.claim2core.gthulhu.io{key}": "true"}
    pod = node.pod(claim, annotations=annotations)
    workload = node.run(pod, claim)
    assert workload.first.cpus == all_cpus()
    assert node.limits(workload).shares == NO_REQUEST_SHARES
    node.update(workload, cpuset_cpus="0")
    assert node.kernel(workload).cpus == {0}


def test_opt_out_of_one_container_leaves_the_others_confined(node):
    claim = node.claim("1")
    annotations = {"cpu.preserve.claim2core.gthulhu.io/container.other": "true"}
    workload = node.run(node.pod(claim, annotations=annotations), claim)
    assert workload.first.cpus == {1}


def test_reserved_namespace_keeps_its_memory_nodes(node):
    claim = node.claim("1")
    pod = node.pod(claim, namespace="kube-system")
    workload = node.run(pod, claim)
    assert workload.first.cpus == {1}
    assert not node.spec_cpu(workload).get("mems")
    unclaimed = node.run(pod, name="service")
    assert unclaimed.first.cpus == all_cpus()


def test_state_says_what_the_kernel_says(node):
    claim, workload = node.run_claiming("1")
    entry = node.entry(workload)
    assert entry is not None
    assert node.verdicts(workload) == {claim.uid: "verified"}
    assert entry["envelope"]["cpus"] == "1"
    assert entry["envelope"]["ownership"] == "own"
    kernel = node.kernel(workload)
    assert entry["observed"]["cpus"] == ",".join(map(str, sorted(kernel.cpus)))
    assert entry["violations"] == []
    node.bed.cri.stop(workload.id)
    assert node.entry(workload) is None


def test_gone_claim_leaves_the_running_container_where_it_is(node):
    claim, workload = node.run_claiming("1")
    labnode.remove_dra_cpu_spec(node.bed.paths.cdi_dir, claim.uid)
    node.update(workload, cpuset_cpus="0")
    assert node.kernel(workload).cpus == {1}
