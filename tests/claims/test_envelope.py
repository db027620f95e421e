"""Envelopes: the rows of the table, memory nodes, offline CPUs, shares."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nri_claim2core.claims.effects import Outcome
from nri_claim2core.claims.envelope import compute_envelope, keep_cpuset
from nri_claim2core.model.claim import ClaimLink, Verdict
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.envelope import Ownership

OWN, FOREIGN, NONE = Ownership.OWN, Ownership.FOREIGN, Ownership.NONE


def granted(bed, **claims):
    """Outcome with granted links by claim letter, e.g. A="0-3"."""
    return Outcome(
        granted=tuple(
            ClaimLink(claim_uid=getattr(bed, k), verdict=Verdict.VERIFIED, cpus=bed.cpus(v))
            for k, v in claims.items()
        )
    )


def envelope_of(bed, outcome, ownership=OWN, *, pod=None, shares=None, mems="", **more):
    more.setdefault("topology", bed.topology())
    return compute_envelope(
        pod or bed.pod(), bed.container(shares=shares, mems=mems), outcome, ownership, **more
    )


def plain(envelope):
    return (
        envelope.ownership.value,
        str(envelope.cpus),
        str(envelope.mems),
        envelope.shares,
        [f.code for f in envelope.findings],
        envelope.refusal,
    )


def test_a_claim_only_container_gets_the_union_its_nodes_and_shares(bed):
    assert plain(envelope_of(bed, granted(bed, A="0-3"))) == ("own", "0-3", "0", 4096, [], "")
    both = envelope_of(bed, granted(bed, A="0-3", B="8,9"))
    assert plain(both) == ("own", "0-3,8-9", "0-1", 6 * 1024, [], "")
    assert both.reason == f"CPUs of claims {bed.A}, {bed.B}"
    three = envelope_of(bed, granted(bed, A="0", B="1", C="2"), kubelet_entry=bed.cpus("0"))
    assert three.reason == f"CPUs of claims {bed.A}, {bed.B} and 1 more"


@pytest.mark.parametrize("shares", [None, 0, 2])
def test_minimal_shares_are_no_request(bed, shares):
    assert envelope_of(bed, granted(bed, A="0-1"), shares=shares).shares == 2048


@pytest.mark.parametrize("shares", [3, 102, 1024])
def test_a_container_with_a_request_keeps_its_shares_and_is_confined_to_its_claims(bed, shares):
    envelope = envelope_of(bed, granted(bed, A="0-1"), shares=shares)
    assert plain(envelope) == ("own", "0-1", "0", None, [], "")


def test_shares_stop_at_the_kernels_maximum(bed):
    everything = granted(bed, A="0-299")
    assert envelope_of(bed, everything, topology=None).shares == 262144


def test_cpus_that_kubelet_gave_the_container_alone_are_never_taken_away(bed):
    envelope = envelope_of(bed, granted(bed, A="0-1"), shares=2048, kubelet_entry=bed.cpus("8-9"))
    assert plain(envelope) == ("own", "0-1,8-9", "0-1", None, [], "")
    assert "kubelet's exclusive CPUs 8-9" in envelope.reason


def test_offline_cpus_are_left_out_and_named(bed):
    envelope = envelope_of(
        bed, granted(bed, A="14-17"), kubelet_entry=bed.cpus("3,20"), topology=bed.topology()
    )
    assert plain(envelope)[:2] == ("own", "3,14-15")
    (finding,) = envelope.findings
    assert finding.code == "C2C-ENV-04"
    assert "16-17" in finding.message


def test_a_claim_of_offline_cpus_alone_is_refused_at_creation_only(bed):
    outcome = granted(bed, A="16-17")
    created = envelope_of(bed, outcome)
    assert (created.ownership, created.cpus, created.mems) == (NONE, CpuSet(), CpuSet())
    assert [f.code for f in created.findings] == ["C2C-ENV-03"]
    assert created.refusal.startswith("C2C-ENV-03")
    assert "16-17" in created.refusal
    assert bed.A in created.refusal
    running = envelope_of(bed, outcome, creating=False)
    assert (running.ownership, running.refusal) == (NONE, "")
    foreign = envelope_of(bed, outcome, FOREIGN)
    assert (foreign.cpus, foreign.refusal) == (CpuSet(), "")


def test_kubelets_cpus_remain_when_all_claimed_ones_are_offline(bed):
    envelope = envelope_of(bed, granted(bed, A="16"), kubelet_entry=bed.cpus("4"))
    assert plain(envelope) == ("own", "4", "0", None, ["C2C-ENV-03"], "")


@pytest.mark.parametrize(
    ("nodes", "arrived", "mems", "codes"),
    [
        ({0: ("0-7", True), 1: ("8-15", True)}, "", "0", []),
        ({0: ("0-7", True), 1: ("8-15", True)}, "0-1", "0", []),
        ({0: ("0-7", True), 1: ("8-15", True)}, "1", "", ["C2C-ENV-05"]),
        ({0: ("0-7", True), 1: ("8-15", True)}, "zero", "", ["C2C-ENV-07"]),
        # Sub-NUMA clusters: claimed CPUs on two nodes, the memory manager set one of them.
        ({0: ("0-1", True), 1: ("2-3", True)}, "", "0-1", []),
        ({0: ("0-1", True), 1: ("2-3", True)}, "1", "1", []),
        # Node 0 has CPUs and no memory, node 2 memory and no CPUs.
        ({0: ("0-1", False), 1: ("2-3", True), 2: ("", True)}, "", "1", []),
        ({0: ("0-7", False), 2: ("", True)}, "", "", ["C2C-ENV-06"]),
        ({0: ("0-7", False), 2: ("", True)}, "2", "", ["C2C-ENV-06"]),
        # A kernel without NUMA has no nodes to set.
        ({}, "", "", []),
    ],
)
def test_memory_nodes(bed, nodes, arrived, mems, codes):
    envelope = envelope_of(
        bed, granted(bed, A="0-3"), mems=arrived, topology=bed.topology(nodes=nodes)
    )
    assert str(envelope.mems) == mems
    assert [f.code for f in envelope.findings] == codes
    assert envelope.cpus == bed.cpus("0-3")


@pytest.mark.parametrize(
    ("in_force", "mems"),
    [
        ("0", "0"),
        # Never set, or wider: written at creation or not at all, so it is no bound.
        ("", ""),
        ("0-1", ""),
    ],
)
def test_memory_nodes_of_what_exists_are_those_that_were_set(bed, in_force, mems):
    envelope = envelope_of(bed, granted(bed, A="0-3"), mems=in_force, creating=False)
    assert plain(envelope) == ("own", "0-3", mems, 4096, [], "")


def test_without_a_topology_nothing_is_offline_and_memory_stays(bed):
    envelope = envelope_of(bed, granted(bed, A="20-21"), topology=None)
    assert plain(envelope) == ("own", "20-21", "", 2048, [], "")


@pytest.mark.parametrize("shares", [None, 102])
def test_a_reserved_namespace_keeps_its_memory_nodes(bed, shares):
    envelope = envelope_of(
        bed, granted(bed, A="0-1"), pod=bed.pod(namespace="kube-system"), shares=shares
    )
    assert (str(envelope.cpus), str(envelope.mems)) == ("0-1", "")
    other = envelope_of(
        bed,
        granted(bed, A="0-1"),
        pod=bed.pod(namespace="kube-system"),
        reserved_namespaces=frozenset({"infra"}),
    )
    assert str(other.mems) == "0"


def test_somebody_elses_cpuset_is_checked_and_not_written(bed):
    envelope = envelope_of(
        bed, granted(bed, A="0-1,16"), FOREIGN, kubelet_entry=bed.cpus("8"), mems="1"
    )
    assert plain(envelope) == ("foreign", "0-1", "", None, ["C2C-ENV-04"], "")


def test_no_granted_claim_confines_nothing_and_passes_a_refusal_on(bed):
    assert plain(envelope_of(bed, Outcome())) == ("none", "", "", None, [], "")
    refused = Outcome(refusal="C2C-CLAIM-06: forged")
    assert envelope_of(bed, refused).refusal == "C2C-CLAIM-06: forged"
    assert envelope_of(bed, refused, creating=False).refusal == ""
    both = Outcome(granted=granted(bed, A="0-1").granted, refusal="no")
    assert envelope_of(bed, both).refusal == "no"


def test_claims_without_cpus_confine_nothing(bed):
    assert plain(envelope_of(bed, granted(bed, A=""))) == ("none", "", "", None, [], "")


def test_a_container_that_opted_out_is_left_alone_by_name(bed):
    pod = bed.pod({"cpu.preserve.claim2core.gthulhu.io": "true"})
    envelope = envelope_of(bed, granted(bed, A="0-1"), pod=pod, kubelet_entry=bed.cpus("8"))
    assert plain(envelope) == ("none", "", "", None, ["C2C-ENV-01"], "")
    other = bed.pod({"cpu.preserve.claim2core.gthulhu.io/container.other": "true"})
    assert str(envelope_of(bed, granted(bed, A="0-1"), pod=other).cpus) == "0-1"
    bad = bed.pod({"cpu.preserve.claim2core.gthulhu.io": "yes"})
    ignored = envelope_of(bed, granted(bed, A="0-1"), pod=bad)
    assert plain(ignored)[1] == "0-1"
    assert plain(ignored)[4] == ["C2C-ENV-02"]


@pytest.mark.parametrize(
    ("has", "cpus", "ownership"),
    [("0-3", "0-3", "own"), ("3,2", "2-3", "own"), ("", "", "none"), ("x", "", "none")],
)
def test_a_running_container_without_a_claim_any_more_keeps_the_cpus_it_has(
    bed, has, cpus, ownership
):
    nothing = envelope_of(bed, Outcome(), creating=False)
    kept = keep_cpuset(bed.container(cpus=has), nothing)
    assert plain(kept) == (ownership, cpus, "", None, [], "")


def test_a_claim_that_holds_is_not_replaced_by_the_cpus_in_force(bed):
    held = envelope_of(bed, granted(bed, A="0-1"), creating=False)
    assert keep_cpuset(bed.container(cpus="4-7"), held) == held


small_sets = st.frozensets(st.integers(0, 20), max_size=6)


@given(
    a=small_sets,
    b=small_sets,
    exclusive=small_sets,
    online=small_sets,
    ownership=st.sampled_from([OWN, FOREIGN]),
)
def test_the_envelope_is_within_what_was_given_and_never_empty_by_accident(
    bed, *, a, b, exclusive, online, ownership
):
    outcome = Outcome(
        granted=tuple(
            ClaimLink(claim_uid=uid, verdict=Verdict.VERIFIED, cpus=CpuSet(members))
            for uid, members in ((bed.B, a), (bed.A, b))
        )
    )
    text = ",".join(str(cpu) for cpu in sorted(online))
    envelope = envelope_of(
        bed,
        outcome,
        ownership,
        topology=bed.topology(online=text),
        kubelet_entry=CpuSet(exclusive),
    )
    expected = set()
    if a | b:
        expected = (a | b | (exclusive if ownership is OWN else set())) & online
    assert set(envelope.cpus) == expected
    assert set(envelope.mems) <= {0, 1}
    assert bool(envelope.refusal) == (ownership is OWN and bool(a | b) and not expected)
    if envelope.ownership is OWN:
        assert envelope.cpus
