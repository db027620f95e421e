"""Who writes a container's cpuset: us, or another plugin - and never both.

The other plugin is not ours: the minimal one on the Go stub, which sets its CPUs in every
creation and update of a container with a claim variable. What the runtime makes of two
plugins, and what the kernel has in the end, is theirs to say.
"""

from __future__ import annotations

import pytest

from e2e.peers.need import short_directory
from e2e.plugin_node import (
    HAS_CPUS_0_AND_1,
    NEEDS_CPUS_0_AND_1,
    VALIDATES_SINCE,
    PluginNode,
    all_cpus,
)
from nri_claim2core.lab.containerd import BedOptions, Containerd
from nri_claim2core.lab.cri import ContainerState, Resources
from nri_claim2core.lab.errors import CriError

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(not HAS_CPUS_0_AND_1, reason=NEEDS_CPUS_0_AND_1),
]


def ownership(node, workload) -> str:
    return node.entry(workload)["envelope"]["ownership"]


def violations(node, workload) -> list[str]:
    return [finding["code"] for finding in node.entry(workload)["violations"]]


# -- another plugin before us ---------------------------------------------------------------


def test_cpuset_of_a_plugin_before_us_is_left_alone(node):
    with node.peer("10", "1"):
        claim, workload = node.run_claiming("1")
        assert workload.first.cpus == {1}
        assert node.verdicts(workload) == {claim.uid: "verified"}
        assert ownership(node, workload) == "foreign"
        assert violations(node, workload) == []
        # Shares and memory nodes are left alone as well.
        assert node.limits(workload).shares == 2
        assert not node.spec_cpu(workload).get("mems")
        # An update has one writer: two would make the runtime refuse it.
        node.update(workload, cpuset_cpus="0")
        assert node.kernel(workload).cpus == {1}


def test_cpuset_that_misses_the_claim_is_reported_and_starts(node):
    with node.peer("10", "0"):
        since = node.log_size()
        claim, workload = node.run_claiming("1")
        assert workload.first.cpus == {0}
        assert node.kernel(workload).cpus == {0}
        assert ownership(node, workload) == "foreign"
        assert "C2C-ENV-13" in violations(node, workload)
        assert node.metric("claim2core_envelope_violated_containers") == 1
        [linked] = node.logged("container linked", since)
        assert any("C2C-ENV-13" in finding for finding in linked["findings"])
        assert claim.uid in linked["claims"]


def test_cpuset_on_another_claim_is_reported(node):
    owner, _ = node.run_claiming("0")
    with node.peer("10", "0-1"):
        _, workload = node.run_claiming("1")
        assert workload.first.cpus == {0, 1}
        assert "C2C-ENV-14" in violations(node, workload)
        [violation] = node.entry(workload)["violations"]
        assert owner.uid in violation["message"]


def test_violation_is_refused_where_configured(node):
    node.configure(claims={"onForeignViolation": "reject"})
    with node.peer("10", "0"):
        claim = node.claim("1")
        pod = node.pod(claim)
        with pytest.raises(CriError, match="C2C-ENV-13") as refused:
            node.create(pod, claim)
        assert "lacks claimed CPUs 1" in refused.value.details
        assert node.plugin.state()["containers"] == []
        # What keeps to its claim starts.
        _, workload = node.run_claiming("0")
        assert workload.first.cpus == {0}


def test_plugin_that_comes_later_finds_what_is_ours(node):
    """It is asked before us from now on: in an update of what we own it is a second writer."""
    _, workload = node.run_claiming("1")
    with node.peer("10", "0"):
        with pytest.raises(CriError, match=r"both tried to set"):
            node.update(workload, cpuset_cpus="0")
        assert node.kernel(workload).cpus == {1}
    node.update(workload, cpuset_cpus="0")
    assert node.kernel(workload).cpus == {1}


# -- another plugin after us ----------------------------------------------------------------


def test_plugin_after_us_that_writes_too_fails_the_creation_by_name(node):
    with node.peer("99", "1"):
        claim = node.claim("1")
        pod = node.pod(claim)
        with pytest.raises(CriError, match=r'"99-go" and "95-claim2core" both tried to set'):
            node.create(pod, claim)
        assert node.plugin.state()["containers"] == []
        # It writes for no container without a claim, and neither do we.
        assert node.run(pod, name="unclaimed").first.cpus == all_cpus()
    assert node.run(pod, claim, name="again").first.cpus == {1}


# -- modes ----------------------------------------------------------------------------------


def test_enforce_takes_over_what_kubelet_alone_could_have_set(node):
    node.configure(mode="enforce")
    claim = node.claim("1")
    workload = node.run(node.pod(claim), claim, resources=Resources(cpuset_cpus="0"))
    assert workload.first.cpus == {1}
    assert ownership(node, workload) == "own"


def test_enforce_and_a_second_plugin_fail_the_creation_by_name(node):
    node.configure(mode="enforce")
    with node.peer("10", "1"):
        claim = node.claim("1")
        with pytest.raises(CriError, match=r'"95-claim2core" and "10-go" both tried to set'):
            node.create(node.pod(claim), claim)


def test_auto_leaves_a_value_that_is_nobodys(node):
    """A cpuset that came with the creation and that kubelet's state does not hold."""
    claim = node.claim("1")
    workload = node.run(node.pod(claim), claim, resources=Resources(cpuset_cpus="0"))
    assert workload.first.cpus == {0}
    assert ownership(node, workload) == "foreign"
    assert "C2C-ENV-13" in violations(node, workload)
    node.update(workload, cpuset_cpus="0-1")
    assert node.kernel(workload).cpus == {0, 1}
    assert violations(node, workload) == []


@pytest.mark.parametrize("mode", ["verify", "observe"])
def test_modes_that_look_write_nothing(node, mode):
    node.configure(mode=mode)
    claim, workload = node.run_claiming("1")
    assert workload.first.cpus == all_cpus()
    assert not node.spec_cpu(workload).get("cpus")
    assert node.limits(workload).shares == 2
    assert node.verdicts(workload) == {claim.uid: "verified"}
    node.update(workload, cpuset_cpus="0")
    assert node.kernel(workload).cpus == {0}
    assert "C2C-ENV-13" in violations(node, workload)


@pytest.mark.parametrize("mode", ["verify", "observe"])
def test_only_verify_refuses(node, mode):
    node.configure(mode=mode, claims={"onForeignViolation": "reject", "onForged": "reject"})
    claim = node.claim("1")
    outside = Resources(cpuset_cpus="0")
    pod, thief = node.pod(claim), node.pod(name="thief")
    if mode == "verify":
        with pytest.raises(CriError, match="C2C-ENV-13"):
            node.create(pod, claim, resources=outside)
        with pytest.raises(CriError, match="forged"):
            node.create(thief, env={claim.variable: "1"})
    else:
        assert node.run(pod, claim, resources=outside).first.cpus == {0}
        assert node.run(thief, env={claim.variable: "1"}).first.cpus == all_cpus()


# -- validation -----------------------------------------------------------------------------


def need_validation(node) -> None:
    if node.bed.installation.version < VALIDATES_SINCE:
        pytest.skip(f"{node.bed.installation.label} asks no plugin to validate")


def test_validation_rejects_what_a_later_plugin_does(node):
    """In mode verify nothing of ours is in the way: only validation sees the last word."""
    need_validation(node)
    node.configure(mode="verify", validateAdjustments=True)
    with node.peer("99", "0"):
        claim = node.claim("1")
        pod = node.pod(claim)
        with pytest.raises(CriError, match="C2C-ENV-13"):
            node.create(pod, claim)
        inside = node.claim("0")
        assert node.run(node.pod(inside, name="inside"), inside).first.cpus == {0}
        assert node.run(pod, name="unclaimed").first.cpus == all_cpus()


def test_without_validation_a_later_plugin_is_reported_only(node):
    node.configure(mode="verify")
    with node.peer("99", "0"):
        _, workload = node.run_claiming("1")
        assert workload.first.cpus == {0}
        assert "C2C-ENV-13" in violations(node, workload)


def test_validation_accepts_what_we_do(node):
    node.configure(validateAdjustments=True)
    one, other = node.claim("0"), node.claim("1")
    workload = node.run(node.pod(one, other), one, other)
    assert workload.first.cpus == {0, 1}
    _, single = node.run_claiming("1")
    assert single.first.cpus == {1}
    # A runtime without validation is not asked for it: one event too many would end it.
    assert node.plugin.registrations() == 1


# -- required by the runtime ----------------------------------------------------------------


def test_required_plugin_keeps_creations_from_going_ahead_without_it(installation, images):
    if installation.version < VALIDATES_SINCE:
        pytest.skip(f"{installation.label} has no default validator")
    options = BedOptions(required_plugins=("claim2core",))
    with Containerd(installation, options=options) as bed, short_directory() as directory:
        bed.import_images(images)
        with PluginNode(bed, directory) as node:
            claim, workload = node.run_claiming("1")
            assert workload.first.cpus == {1}
            node.plugin.kill()
            pod = node.pod(claim, name="meanwhile")
            with pytest.raises(CriError, match="claim2core"):
                node.create(pod, claim)
            assert bed.cri.status(workload.id).state is ContainerState.RUNNING
            assert node.kernel(workload).cpus == {1}
            node.plugin.start()
            assert node.run(pod, claim).first.cpus == {1}
