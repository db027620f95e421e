"""What a pod author writes grants nothing, and evidence that is damaged takes nothing down.

Who decides differs: containerd 2.4 tells plugins the CDI devices of a container, 2.1 does not,
so there kubelet's checkpoint says who holds a claim. The judges are the kernel (which CPUs),
CRI (what is refused, with which words) and the process itself (memory, still connected).
"""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path

import pytest

from e2e.peers.go_runtime import GoRuntime
from e2e.peers.need import need_go_peers, short_directory
from e2e.plugin_node import HAS_CPUS_0_AND_1, NEEDS_CPUS_0_AND_1, all_cpus
from nri_claim2core.lab.errors import CriError
from nri_claim2core.lab.plugin_process import PluginProcess
from nri_claim2core.nri import nri_pb2 as api

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(not HAS_CPUS_0_AND_1, reason=NEEDS_CPUS_0_AND_1),
]

UID = "8d2b7a4e-5c1f-4f0b-9a34-7e6d0c1b2a93"
VARIABLE = f"DRA_CPUSET_{UID}"

# Value -> what its refusal has to say of it.
MALFORMED = {
    "a-b": "'a-b'",
    "0-": "'0-'",
    "-1": "'-1'",
    "3-0": "'3-0'",
    "": "empty",
    "0-1:1": "'0-1:1'",
    "0-7:2/4": "'0-7:2/4'",
    "\u0660-\u0661": "\\u0660",
    "0-4000000000": "'0-4000000000'",
    "0,,1": "'0,,1'",
    "0x1": "'0x1'",
    "dynamic": "'dynamic'",
}
NOT_CLAIMS = {
    "DRA_CPUSET_ASSIGNED": "0",
    "DRA_CPUSET_dynamic": "0",
    f"DRA_CPUSET_{UID.upper()}": "0",
    "DRA_CPUSET_": "0",
    f"dra_cpuset_{UID}": "0",
    f"DRA_CPUSET_{UID}0": "0",
}


def is_untouched(node, workload) -> bool:
    return (
        workload.first.cpus == all_cpus()
        and not node.spec_cpu(workload).get("cpus")
        and node.kernel(workload).cpus == all_cpus()
    )


# -- forged ---------------------------------------------------------------------------------


def test_copied_uid_of_another_pods_claim_grants_nothing(node):
    claim, owner = node.run_claiming("1")
    thief = node.run(node.pod(name="thief"), env={claim.variable: "1"})
    assert is_untouched(node, thief)
    assert node.verdicts(thief) == {claim.uid: "forged"}
    assert node.kernel(owner).cpus == {1}
    # No update of kubelet's is held up by it either.
    node.update(thief, cpuset_cpus="0")
    assert node.kernel(thief).cpus == {0}


def test_claim_that_was_never_prepared_grants_nothing(node):
    node.claim("1")
    workload = node.run(node.pod(), env={VARIABLE: "1"})
    assert is_untouched(node, workload)
    assert node.verdicts(workload) == {UID: "forged"}


def test_claim_of_a_neighbor_in_the_same_pod(node):
    """The checkpoint speaks of pods: only a runtime that reports devices can tell."""
    claim = node.claim("1")
    pod = node.pod(claim)
    node.run(pod, claim, name="owner")
    neighbor = node.run(pod, name="neighbor", env={claim.variable: "1"})
    if node.reports_cdi:
        assert is_untouched(node, neighbor)
        assert node.verdicts(neighbor) == {claim.uid: "forged"}
    else:
        # It may run on the CPUs of a claim that its pod was given; never outside them.
        assert neighbor.first.cpus == {1}


def test_forged_variable_beside_a_claim_of_its_own(node):
    other, _ = node.run_claiming("0")
    claim = node.claim("1")
    workload = node.run(node.pod(claim, name="own"), claim, env={other.variable: "0"})
    assert workload.first.cpus == {1}
    assert node.verdicts(workload) == {claim.uid: "verified", other.uid: "forged"}


def test_forged_is_refused_where_configured(node):
    node.configure(claims={"onForged": "reject"})
    claim, owner = node.run_claiming("1")
    pod = node.pod(name="thief")
    with pytest.raises(CriError) as refused:
        node.create(pod, env={claim.variable: "1"})
    assert claim.variable in refused.value.details
    assert "forged" in refused.value.details
    rule = "CDI device" if node.reports_cdi else "checkpoint"
    assert rule in refused.value.details
    # The others go on, and so does this pod without the variable.
    assert node.run(pod, name="honest").first.cpus == all_cpus()
    assert node.kernel(owner).cpus == {1}


# -- mismatch -------------------------------------------------------------------------------


def write_meddling_device(node, variable: str, value: str) -> str:
    """A second CDI device, root-owned as the first, that sets the claim's variable anew."""
    spec = {
        "cdiVersion": "0.6.0",
        "kind": "example.com/meddler",
        "devices": [{"name": "one", "containerEdits": {"env": [f"{variable}={value}"]}}],
    }
    (node.bed.paths.cdi_dir / "example.com-meddler.json").write_text(json.dumps(spec))
    return "example.com/meddler=one"


@pytest.mark.parametrize("value", ["0", "0-1", "a-b"])
def test_the_specs_cpus_hold_when_the_environment_says_otherwise(node, value):
    claim = node.claim("1")
    device = write_meddling_device(node, claim.variable, value)
    workload = node.run(node.pod(claim), claim, devices=[device])
    env = node.bed.cri.status(workload.id).runtime_spec["process"]["env"]
    assert [entry for entry in env if claim.uid in entry] == [f"{claim.variable}={value}"]
    assert workload.first.cpus == {1}
    assert node.kernel(workload).cpus == {1}
    assert node.verdicts(workload) == {claim.uid: "mismatch"}


def test_the_pods_own_value_of_its_claim_changes_nothing(node):
    """Newer runtimes let the device's edit replace the pod's value; 2.1 leaves both in place."""
    claim = node.claim("1")
    workload = node.run(node.pod(claim), claim, env={claim.variable: "0"})
    env = node.bed.cri.status(workload.id).runtime_spec["process"]["env"]
    values = [entry for entry in env if claim.uid in entry]
    assert f"{claim.variable}=1" in values
    assert workload.first.cpus == {1}
    assert node.verdicts(workload) == {claim.uid: "verified" if len(values) == 1 else "mismatch"}


# -- malformed ------------------------------------------------------------------------------


@pytest.mark.parametrize("value", MALFORMED)
def test_malformed_value_grants_nothing(node, value):
    workload = node.run(node.pod(), env={VARIABLE: value})
    assert is_untouched(node, workload)
    assert node.verdicts(workload) == {UID: "malformed"}


def test_two_values_of_one_uid_grant_nothing(node):
    workload = node.run(node.pod(), env=[(VARIABLE, "0"), (VARIABLE, "1")])
    env = node.bed.cri.status(workload.id).runtime_spec["process"]["env"]
    assert sorted(entry for entry in env if UID in entry) == [f"{VARIABLE}=0", f"{VARIABLE}=1"]
    assert is_untouched(node, workload)
    assert node.verdicts(workload) == {UID: "malformed"}


def test_malformed_is_refused_with_variable_value_and_rule(node):
    node.configure(claims={"onMalformed": "reject"})
    pod = node.pod()
    for value, said in MALFORMED.items():
        with pytest.raises(CriError) as refused:
            node.create(pod, env={VARIABLE: value})
        assert "malformed" in refused.value.details
        assert VARIABLE in refused.value.details
        assert said in refused.value.details
    with pytest.raises(CriError) as refused:
        node.create(pod, env=[(VARIABLE, "0"), (VARIABLE, "1")])
    for said in (VARIABLE, "'0'", "'1'"):
        assert said in refused.value.details
    # A claim that holds is not malformed because a second variable is set beside it.
    assert node.run(pod, name="honest").first.cpus == all_cpus()


def test_variables_that_are_not_claims_are_none_even_where_all_is_refused(node):
    node.configure(claims={"onMalformed": "reject", "onForged": "reject", "onUnverified": "reject"})
    claim = node.claim("1")
    workload = node.run(node.pod(claim), claim, env=NOT_CLAIMS)
    assert workload.first.cpus == {1}
    assert node.verdicts(workload) == {claim.uid: "verified"}
    unclaimed = node.run(node.pod(name="unclaimed"), env=NOT_CLAIMS)
    assert is_untouched(node, unclaimed)
    assert node.entry(unclaimed) is None


# -- unverified -----------------------------------------------------------------------------


def spoil_checkpoint(node) -> None:
    path = node.bed.paths.kubelet_dir / "dra_manager_state"
    text = path.read_bytes()
    path.write_bytes(text[: len(text) // 2])


def unverified(node):
    """A pod with a claim whose holder nobody can name."""
    claim = node.claim("1")
    pod = node.pod(claim)
    spoil_checkpoint(node)
    if node.reports_cdi:
        pytest.skip("this containerd proves its containers' claims without kubelet")
    return claim, pod


def test_unverified_claim_grants_nothing(node):
    claim, pod = unverified(node)
    workload = node.run(pod, claim)
    assert is_untouched(node, workload)
    assert node.verdicts(workload) == {claim.uid: "unverified"}


def test_unverified_claim_is_enforced_where_configured(node):
    node.configure(claims={"onUnverified": "enforce"})
    claim, pod = unverified(node)
    assert node.run(pod, claim).first.cpus == {1}


def test_unverified_claim_is_refused_where_configured(node):
    node.configure(claims={"onUnverified": "reject"})
    claim, pod = unverified(node)
    with pytest.raises(CriError) as refused:
        node.create(pod, claim)
    for said in (claim.uid, "unverified", "checkpoint"):
        assert said in refused.value.details


def test_damaged_checkpoint_is_no_proof_of_forgery(node):
    """Half a file: nobody is called a forger, and claims of containers that run stay."""
    claim, workload = node.run_claiming("1")
    spoil_checkpoint(node)
    node.update(workload, cpuset_cpus="0")
    assert node.kernel(workload).cpus == {1}
    stranger = node.run(node.pod_without_checkpoint(), env={claim.variable: "1"})
    assert node.verdicts(stranger) == {claim.uid: "forged" if node.reports_cdi else "unverified"}
    assert is_untouched(node, stranger)


def test_fifo_in_place_of_the_checkpoint_holds_nothing_up(node):
    claim = node.claim("1")
    pod = node.pod(claim)
    path = node.bed.paths.kubelet_dir / "dra_manager_state"
    path.unlink()
    os.mkfifo(path)
    workload = node.run(pod, claim)
    assert node.verdicts(workload) == {claim.uid: "verified" if node.reports_cdi else "unverified"}
    assert node.plugin.registrations() == 1


# -- damaged CDI specs ----------------------------------------------------------------------


def test_half_written_spec_leaves_the_other_claims_usable(node):
    broken, whole = node.claim("0"), node.claim("1")
    path = node.bed.paths.cdi_dir / f"dra.k8s.io-cpu_claim-{broken.uid}.json"
    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    pod = node.pod(broken, whole)
    assert node.run(pod, whole, name="whole").first.cpus == {1}
    # The runtime itself cannot give the broken device to a container.
    with pytest.raises(CriError, match="unresolvable CDI devices"):
        node.create(pod, broken, name="broken")
    hinted = node.run(pod, name="hinted", env={broken.variable: "0"})
    assert is_untouched(node, hinted)
    if not node.reports_cdi:
        assert node.verdicts(hinted) == {broken.uid: "unverified"}
        [link] = node.entry(hinted)["links"]
        assert str(path) in link["reason"]


def test_two_specs_of_one_device_leave_the_other_claims_usable(node):
    double, single = node.claim("0"), node.claim("1")
    path = node.bed.paths.cdi_dir / f"dra.k8s.io-cpu_claim-{double.uid}.json"
    (node.bed.paths.cdi_dir / "copy.json").write_bytes(path.read_bytes())
    pod = node.pod(double, single)
    assert node.run(pod, single, name="single").first.cpus == {1}
    with pytest.raises(CriError, match="unresolvable CDI devices"):
        node.create(pod, double, name="double")
    hinted = node.run(pod, name="hinted", env={double.variable: "0"})
    assert is_untouched(node, hinted)
    if not node.reports_cdi:
        [link] = node.entry(hinted)["links"]
        assert link["verdict"] == "unverified"
        assert "copy.json" in link["reason"]


def test_specs_that_cannot_be_read_leave_the_other_claims_usable(node, tmp_path):
    """In a directory of the plugin's alone: containerd would wait for the FIFO's writer."""
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "directory.json").mkdir()
    (damaged / "dangling.json").symlink_to(damaged / "nowhere")
    (damaged / "loop.json").symlink_to(damaged / "loop.json")
    os.mkfifo(damaged / "fifo.json")
    (damaged / "binary.yaml").write_bytes(b"\xff\xfe\x00" * 100)
    (damaged / "empty.json").write_bytes(b"")
    # Aliases of aliases: a line each in the file, 9**8 entries when expanded.
    bomb = "l0: &l0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"l{n}: &l{n} [{','.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 9)
    )
    (damaged / "bomb.yaml").write_text(bomb)
    with (damaged / "huge.json").open("wb") as sparse:
        sparse.truncate(1 << 30)
    node.configure(cdi={"specDirs": [str(damaged), str(node.bed.paths.cdi_dir)]})
    before = node.rss_kib()
    claim, workload = node.run_claiming("1")
    assert workload.first.cpus == {1}
    assert node.verdicts(workload) == {claim.uid: "verified"}
    assert node.rss_kib() - before < 16 << 10
    assert node.plugin.registrations() == 1


# -- CPUs that are not there ----------------------------------------------------------------


def missing_cpu() -> int:
    """A CPU number above all that this machine could ever have."""
    last = Path("/sys/devices/system/cpu/possible").read_text().strip().split("-")[-1]
    return int(last) + 5


def test_claim_of_cpus_that_do_not_exist_is_refused_by_name(node):
    cpu = missing_cpu()
    claim = node.claim(f"{cpu}")
    with pytest.raises(CriError) as refused:
        node.create(node.pod(claim), claim)
    for said in (claim.uid, f"({cpu})", "online"):
        assert said in refused.value.details


def test_claim_with_one_cpu_that_does_not_exist_runs_on_the_others(node):
    cpu = missing_cpu()
    claim = node.claim(f"1,{cpu}")
    workload = node.run(node.pod(claim), claim)
    assert workload.first.cpus == {1}
    findings = [finding["message"] for finding in node.entry(workload)["findings"]]
    assert any(f"no CPUs {cpu}" in message for message in findings)


# -- size -----------------------------------------------------------------------------------


def test_huge_values_cost_neither_memory_nor_the_connection(node):
    """1 MiB is more than exec allows for one variable, so these are created and never run."""
    pod = node.pod()
    node.create(pod, name="first", env={VARIABLE: "0," * (1 << 19)})
    before = node.rss_kib()
    for number in range(20):
        uid = f"8d2b7a4e-5c1f-4f0b-9a34-{number:012x}"
        ref = node.create(pod, name=f"c{number}", env={f"DRA_CPUSET_{uid}": "0," * (1 << 19)})
        assert node.verdicts(ref) == {uid: "malformed"}
    assert node.rss_kib() - before < 4 << 10
    assert node.plugin.registrations() == 1
    assert node.metric("claim2core_nri_budget_exhausted_total") == 0
    claim = node.claim("1")
    assert node.run(node.pod(claim, name="next"), claim).first.cpus == {1}


def test_thousands_of_variables_cost_neither_memory_nor_the_connection(node):
    names = [f"DRA_CPUSET_{uuid.UUID(int=number)}" for number in range(10_000)]
    pod = node.pod()
    node.create(pod, name="first", env=dict.fromkeys(names, "0"))
    before = node.rss_kib()
    for number in range(10):
        ref = node.create(pod, name=f"c{number}", env=dict.fromkeys(names, "0"))
        assert set(node.verdicts(ref).values()) == {"forged"}
        assert len(node.verdicts(ref)) < 100
    assert node.rss_kib() - before < 4 << 10
    assert node.plugin.registrations() == 1
    assert node.metric("claim2core_nri_budget_exhausted_total") == 0


# -- what no pod can write ------------------------------------------------------------------


def test_entries_that_only_a_runtime_could_send():
    """containerd drops an entry without `=` before NRI: so the Go library hands it over."""
    need_go_peers()
    pod = api.PodSandbox(id="pod", name="pod", uid=str(uuid.uuid4()), namespace="default")
    entries = {
        "bare": [VARIABLE],
        "twice": [f"{VARIABLE}=0", VARIABLE],
        "prefix": ["DRA_CPUSET_", "DRA_CPUSET", "=", ""],
    }
    with short_directory() as directory, GoRuntime(directory / "nri.sock") as runtime:
        assert runtime.start().ok
        config = {
            "plugin": {"socketPath": str(directory / "nri.sock")},
            "cdi": {"specDirs": [str(directory / "cdi")]},
            "kubelet": {"root": str(directory / "kubelet")},
            "claims": {"onMalformed": "reject"},
        }
        with PluginProcess(directory, config) as plugin:
            plugin.start()
            for name, env in entries.items():
                container = api.Container(id=name, pod_sandbox_id=pod.id, name=name, env=env)
                reply = runtime.relay("create", pod, container)
                assert reply.ok == (name == "prefix")
                if not reply.ok:
                    assert VARIABLE in reply.error
                    assert "has no `=`" in reply.error
            assert plugin.registrations() == 1
