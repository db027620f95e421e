"""Verdicts: the evidence ladder as a table, traps, and properties over any environment."""

import random as random_module
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nri_claim2core.claims.link import MAX_UNKNOWN, Linker
from nri_claim2core.model.claim import Verdict
from nri_claim2core.model.evidence import Answer, Source
from nri_claim2core.model.records import ContainerState

# Evidence of claim A in words: the environment's value, what the runtime's list holds
# (`?` = not reported), the spec's value, who holds the claim by kubelet (`?` = unreadable).
# The node's spec file says 0-3 unless the row says otherwise.
LADDER = [
    # env        list      spec        kubelet    verdict       CPUs   code
    ("0-3", "A", "0-3", "pod", "verified", "0-3", ""),
    ("3,2,1,0", "A", "0-3", "pod", "verified", "0-3", ""),
    ("0-3", "A", "0-3", "?", "verified", "0-3", ""),
    ("0-3", "meta", "0-3", "pod", "verified", "0-3", ""),
    ("0-3", "?", "0-3", "pod", "verified", "0-3", ""),
    # The list is known and does not name it: forged, whatever else matches.
    ("0-3", "none", "0-3", "pod", "forged", "", "C2C-CLAIM-06"),
    ("0-3", "none", "0-3", "others", "forged", "", "C2C-CLAIM-06"),
    ("0-3", "none", "gone", "unknown", "forged", "", "C2C-CLAIM-06"),
    ("0-3", "none", "0-3", "?", "forged", "", "C2C-CLAIM-06"),
    ("0-3", "B", "0-3", "pod", "forged", "", "C2C-CLAIM-06"),
    ("4-7", "none", "0-3", "pod", "forged", "", "C2C-CLAIM-06"),
    ("0-3", "memory", "0-3", "pod", "forged", "", "C2C-CLAIM-09"),
    # A copied UID: kubelet holds the claim for other pods, or does not know it.
    ("0-3", "?", "0-3", "others", "forged", "", "C2C-CLAIM-07"),
    ("0-3", "?", "gone", "others", "forged", "", "C2C-CLAIM-07"),
    ("0-3", "?", "0-3", "unknown", "forged", "", "C2C-CLAIM-08"),
    ("0-3", "?", "gone", "unknown", "forged", "", "C2C-CLAIM-08"),
    # Tampered or stale values: the spec's CPUs hold.
    ("4-7", "A", "0-3", "pod", "mismatch", "0-3", "C2C-CLAIM-02"),
    ("0-2", "A", "0-3", "?", "mismatch", "0-3", "C2C-CLAIM-02"),
    ("4-7", "?", "0-3", "pod", "mismatch", "0-3", "C2C-CLAIM-02"),
    ("a-b", "A", "0-3", "pod", "mismatch", "0-3", "C2C-CLAIM-03"),
    ("a-b", "?", "0-3", "pod", "mismatch", "0-3", "C2C-CLAIM-03"),
    ("dynamic", "A", "0-3", "pod", "mismatch", "0-3", "C2C-CLAIM-03"),
    ("", "A", "0-3", "pod", "mismatch", "0-3", "C2C-CLAIM-03"),
    # The variable was stripped.
    (None, "A", "0-3", "pod", "verified", "0-3", "C2C-CLAIM-01"),
    (None, "A", "0-3", "?", "verified", "0-3", "C2C-CLAIM-01"),
    (None, "meta", "0-3", "pod", "verified", "0-3", "C2C-CLAIM-01"),
    # The spec is gone: reboot or unprepare.
    ("0-3", "A", "gone", "pod", "stale", "", "C2C-CLAIM-11"),
    ("0-3", "?", "gone", "pod", "stale", "", "C2C-CLAIM-11"),
    (None, "A", "gone", "pod", "stale", "", "C2C-CLAIM-11"),
    ("a-b", "A", "gone", "?", "stale", "", "C2C-CLAIM-11"),
    # The claim is held and its spec cannot be used: its CPUs are not known.
    ("0-3", "A", "broken", "pod", "unverified", "", "C2C-CLAIM-05"),
    ("0-3", "A", "twice", "pod", "unverified", "", "C2C-CLAIM-05"),
    ("0-3", "A", "dynamic", "pod", "unverified", "", "C2C-CLAIM-05"),
    ("0-3", "A", "unreadable", "pod", "unverified", "", "C2C-CLAIM-05"),
    ("0-3", "?", "broken", "pod", "unverified", "", "C2C-CLAIM-05"),
    # Nothing but the spec could be asked.
    ("0-3", "?", "0-3", "?", "unverified", "0-3", "C2C-CLAIM-04"),
    ("0-3", "?", "0-3", "pod-memory", "unverified", "0-3", "C2C-CLAIM-04"),
    ("4-7", "?", "0-3", "?", "unverified", "", "C2C-CLAIM-04"),
    ("0-3", "?", "gone", "?", "unverified", "", "C2C-CLAIM-13"),
    ("0-3", "?", "unreadable", "?", "unverified", "", "C2C-CLAIM-13"),
    ("0-3", "?", "gone", "pod-memory", "unverified", "", "C2C-CLAIM-13"),
    # Malformed, and nothing shows that the container holds the claim.
    ("a-b", "none", "0-3", "pod", "malformed", "", "C2C-CLAIM-10"),
    ("a-b", "memory", "0-3", "pod", "malformed", "", "C2C-CLAIM-10"),
    ("a-b", "?", "gone", "unknown", "malformed", "", "C2C-CLAIM-10"),
    ("a-b", "?", "0-3", "others", "malformed", "", "C2C-CLAIM-10"),
    ("a-b", "?", "0-3", "?", "malformed", "", "C2C-CLAIM-10"),
    ("dynamic", "none", "gone", "?", "malformed", "", "C2C-CLAIM-10"),
    ("", "?", "0-3", "?", "malformed", "", "C2C-CLAIM-10"),
    # A claim that the container holds for its memory alone.
    (None, "memory", "0-3", "pod", "verified", "", ""),
    # Nothing points to the claim: kubelet's entry is the pod's, not this container's.
    (None, "none", "0-3", "pod", None, "", ""),
    (None, "?", "0-3", "pod", None, "", ""),
    (None, "?", "gone", "?", None, "", ""),
]


def scene(bed, value, listed, spec, kubelet):
    """(environment, CDI list, node evidence) of one row."""
    env = [] if value is None else [bed.var(bed.A, value)]
    mine = bed.device_of(bed.A)
    memory = f"dra.k8s.io/memory=claim-{bed.A}"
    cdi_list = {
        "?": None,
        "none": [],
        "A": [mine],
        "B": [bed.device_of(bed.B)],
        "meta": [f"dra.cpu/metadata={bed.A}_cores"],
        "memory": [memory],
    }[listed]
    files = {
        "gone": bed.snapshot(),
        "broken": bed.snapshot(problems=[(f"/var/run/cdi/claim-{bed.A}.json", "half-written")]),
        "twice": bed.snapshot(conflicts={mine: ("/etc/cdi/a.json", "/etc/cdi/b.json")}),
        "unreadable": bed.snapshot(readable=False),
    }
    cdi = files.get(spec) or bed.snapshot(bed.spec(bed.A, spec))
    checkpoint = {
        "?": bed.NO_CHECKPOINT,
        "unknown": bed.checkpoint(),
        "others": bed.checkpoint(bed.held(bed.A, pods=[bed.OTHER_POD])),
        "pod": bed.checkpoint(bed.held(bed.A, pods=[bed.OTHER_POD, bed.POD])),
        "pod-memory": bed.checkpoint(bed.held(bed.A, cdi_ids=[memory])),
    }[kubelet]
    return env, cdi_list, bed.node(cdi, checkpoint)


@pytest.mark.parametrize(
    ("value", "listed", "spec", "kubelet", "verdict", "cpus", "code"),
    LADDER,
    ids=[f"env:{r[0]} list:{r[1]} spec:{r[2]} kubelet:{r[3]}" for r in LADDER],
)
def test_the_ladder(bed, *, value, listed, spec, kubelet, verdict, cpus, code):
    links = bed.links_of(*scene(bed, value, listed, spec, kubelet)).links
    mine = [link for link in links if link.claim_uid == bed.A]
    if verdict is None:
        assert mine == []
        return
    (link,) = mine
    assert (link.verdict.value, str(link.cpus), link.code) == (verdict, cpus, code)
    assert link.reason


@pytest.mark.parametrize("state", ContainerState)
def test_a_claim_that_kubelet_let_go_of_is_stale_for_what_runs_and_forged_for_what_is_created(
    bed, state
):
    scenery = scene(bed, "0-3", "?", "0-3", "unknown")
    (link,) = bed.links_of(*scenery, state=state).links
    started = state in (ContainerState.RUNNING, ContainerState.PAUSED, ContainerState.STOPPED)
    assert link.verdict is (Verdict.STALE if started else Verdict.FORGED)
    assert link.code == ("C2C-CLAIM-12" if started else "C2C-CLAIM-08")


def test_every_link_has_every_sources_answer_strongest_first(bed):
    (link,) = bed.links_of(*scene(bed, "0-3", "A", "0-3", "pod")).links
    assert [e.source for e in link.evidence] == [
        Source.CDI_LIST,
        Source.CDI_SPEC,
        Source.CHECKPOINT,
        Source.ENVIRONMENT,
    ]
    assert {e.answer for e in link.evidence} == {Answer.CONFIRMS}
    details = [e.detail for e in link.evidence]
    assert bed.device_of(bed.A) in details[0]
    assert f"/var/run/cdi/dra.k8s.io-cpu_claim-{bed.A}.json" in details[1]
    assert "batch/cores" in details[2]
    assert details[3] == f"DRA_CPUSET_{bed.A}=0-3"


@pytest.mark.parametrize(
    ("row", "answers"),
    [
        (("0-3", "?", "0-3", "?"), "unavailable confirms unavailable confirms"),
        (("4-7", "none", "0-3", "others"), "denies confirms denies denies"),
        ((None, "memory", "gone", "pod-memory"), "silent denies silent silent"),
        (("a-b", "A", "twice", "pod"), "confirms unavailable confirms unavailable"),
        (("0-3", "A", "gone", "unknown"), "confirms denies denies confirms"),
    ],
)
def test_a_source_that_could_not_be_asked_is_not_a_no(bed, row, answers):
    (link,) = bed.links_of(*scene(bed, *row)).links
    assert [e.answer.value for e in link.evidence] == answers.split()


def test_a_stale_or_mismatched_reason_names_variable_and_value(bed):
    (link,) = bed.links_of(*scene(bed, "4-7", "A", "0-3", "pod")).links
    assert link.reason == f"DRA_CPUSET_{bed.A}=4-7, but the CDI spec says 0-3"
    (link,) = bed.links_of(*scene(bed, "3-0", "none", "gone", "?")).links
    assert link.reason == f"DRA_CPUSET_{bed.A}='3-0': range 3-0 descends"


def test_a_container_without_hints_has_no_links_and_costs_no_index(bed):
    assert bed.links_of((), None, None).links == ()
    assert bed.links_of(["PATH=/bin"], [], None).links == ()
    assert bed.links_of((), ["nvidia.com/gpu=0"], None).links == ()


def test_links_come_in_uid_order_and_one_claims_trouble_is_its_own(bed):
    cdi = bed.snapshot(bed.spec(bed.A, "0-3"), bed.spec(bed.C, "8-11"))
    links = bed.links_of(
        [bed.var(bed.C, "8-11"), bed.var(bed.B, "x"), bed.var(bed.A, "0-3")],
        [bed.device_of(bed.C), bed.device_of(bed.A)],
        bed.node(cdi),
    )
    assert [(k.claim_uid, k.verdict.value) for k in links.links] == [
        (bed.B, "malformed"),
        (bed.A, "verified"),
        (bed.C, "verified"),
    ]
    assert [k.claim_uid for k in links.granted] == [bed.A, bed.C]


def test_nri_plugins_devices_link_like_any_other(bed):
    names = [f"topology-aware.nri.io/device=claim-{bed.A}-{i}" for i in (0, 1)]
    path = "/var/run/cdi/topology-aware.nri.io-device_x.yaml"
    cdi = bed.snapshot(*(bed.spec(bed.A, "0-1", name=n, path=path) for n in names))
    kubelet = bed.checkpoint(bed.held(bed.A, cdi_ids=names))
    for listed in (names, names[:1], None):
        (link,) = bed.links_of([bed.var(bed.A, "1,0")], listed, bed.node(cdi, kubelet)).links
        assert (link.verdict, link.cpus) == (Verdict.VERIFIED, bed.cpus("0-1"))


def test_a_balloon_is_a_claim_without_cpus(bed):
    name = f"balloons.nri.io/device=claim-{bed.A}-0"
    (link,) = bed.links_of((), [name], bed.node()).links
    assert (link.verdict, link.cpus) == (Verdict.VERIFIED, bed.cpus(""))


def test_a_pod_uid_in_a_device_name_is_no_claim(bed):
    name = f"sriovnetwork.k8snetworkplumbingwg.io/vf={bed.POD}"
    assert bed.links_of((), [name], bed.node()).links == ()


# --- findings ------------------------------------------------------------------------------


def found(links):
    return [(f.code, f.severity) for f in links.findings]


def test_look_alike_variables_are_named_in_findings(bed):
    links = bed.links_of([f"DRA_CPUSET_{bed.A.upper()}=0-3", "DRA_CPUSET_ASSIGNED=0-3"])
    assert links.links == ()
    assert found(links) == [("C2C-CLAIM-20", "info")]
    assert bed.A.upper() in links.findings[0].message


def test_offline_and_foreign_cpus_of_a_claim_are_named_and_kept_in_the_link(bed):
    cdi = bed.snapshot(bed.spec(bed.A, "14-17,40"))
    links = bed.links_of([bed.var(bed.A, "14-17,40")], [bed.device_of(bed.A)], bed.node(cdi))
    assert links.links[0].cpus == bed.cpus("14-17,40")
    assert found(links) == [("C2C-CLAIM-25", "warning"), ("C2C-CLAIM-26", "error")]
    assert [f.message for f in links.findings] == [
        f"claim {bed.A}: CPUs 16-17 are offline",
        f"claim {bed.A}: this machine has no CPUs 40",
    ]


def test_cpus_are_not_called_offline_where_the_machine_could_not_be_asked(bed):
    cdi = bed.snapshot(bed.spec(bed.A, "14-17,40"))
    evidence = bed.node(cdi, online=None, possible=None)
    links = bed.links_of([bed.var(bed.A, "14-17,40")], [bed.device_of(bed.A)], evidence)
    assert found(links) == []


def test_cpus_of_a_claim_that_does_not_hold_are_nobodys_trouble(bed):
    cdi = bed.snapshot(bed.spec(bed.A, "14-17"), bed.spec(bed.B, "14-17"))
    env = [bed.var(bed.A, "14-17"), bed.var(bed.B, "14-17")]
    links = bed.links_of(env, None, bed.node(cdi))
    assert [str(k.cpus) for k in links.links] == ["14-17", "14-17"]
    assert (links.granted, links.findings) == ((), ())


def test_two_claims_with_the_same_cpus_are_inconsistent(bed):
    cdi = bed.snapshot(bed.spec(bed.A, "0-3"), bed.spec(bed.B, "3-5"), bed.spec(bed.C, "8"))
    devices = [bed.device_of(uid) for uid in (bed.A, bed.B, bed.C)]
    links = bed.links_of((), devices, bed.node(cdi))
    assert [f.code for f in links.findings] == ["C2C-CLAIM-27"]
    assert f"{bed.B} and {bed.A} both hold CPUs 3" in links.findings[0].message


def test_a_list_that_kubelet_contradicts_is_believed_and_named(bed):
    for kubelet in ("others", "unknown"):
        links = bed.links_of(*scene(bed, "0-3", "A", "0-3", kubelet))
        assert links.links[0].verdict is Verdict.VERIFIED
        assert found(links) == [("C2C-CLAIM-28", "warning")]


def test_troubles_of_a_spec_are_findings_of_the_container(bed):
    assert found(bed.links_of(*scene(bed, "0-3", "A", "twice", "pod"))) == [
        ("C2C-CLAIM-22", "error")
    ]
    assert found(bed.links_of(*scene(bed, "0-3", "A", "dynamic", "pod"))) == [
        ("C2C-CLAIM-23", "error")
    ]


def test_an_unreadable_device_name_is_named_and_the_others_count(bed):
    cdi = bed.snapshot(bed.spec(bed.A, "0-3"))
    links = bed.links_of((), ["v/c=x y", bed.device_of(bed.A), "/dev/null"], bed.node(cdi))
    assert [k.verdict for k in links.links] == [Verdict.VERIFIED]
    assert found(links) == [("C2C-CLAIM-29", "info")] * 2


def test_thousands_of_unknown_claims_get_few_links_and_a_count(bed):
    strangers = [f"DRA_CPUSET_{n:08x}-0000-4000-8000-000000000000=1" for n in range(400)]
    cdi = bed.snapshot(bed.spec(bed.A, "0-3"))
    kubelet = bed.checkpoint(bed.held(bed.A), bed.held(bed.C))
    mine = [bed.var(bed.A, "0-3"), bed.var(bed.C, "1")]
    links = bed.links_of(strangers + mine, None, bed.node(cdi, kubelet))
    assert len(links.links) == MAX_UNKNOWN + 2
    assert [k.claim_uid for k in links.granted] == [bed.A]
    (finding,) = links.findings
    assert finding.code == "C2C-CLAIM-21"
    assert finding.message.startswith(f"{400 - MAX_UNKNOWN} more")


# --- properties ----------------------------------------------------------------------------

SPELLINGS = ["0-3", "3,2,1,0", "4-7", "dynamic", "", "0-4000000000", "x"]
UIDS = ["8d2b7a4e-5c1f-4f0b-9a34-7e6d0c1b2a93", "0c9f1e2d-3b4a-4c5d-8e6f-708192a3b4c5"]
environments = st.lists(
    st.one_of(
        st.builds(
            lambda uid, value: f"DRA_CPUSET_{uid}={value}",
            st.sampled_from([*UIDS, UIDS[0].upper(), "ASSIGNED"]),
            st.one_of(st.sampled_from(SPELLINGS), st.text(max_size=6)),
        ),
        st.sampled_from([f"DRA_CPUSET_{UIDS[0]}", "DRA_CPUSET_", "DRA_CPUSET"]),
        st.text(max_size=50),
    ),
    max_size=6,
)
lists = st.sampled_from(["?", "none", "A", "B", "meta", "memory"])
specs = st.sampled_from(["0-3", "gone", "broken", "twice", "unreadable", "dynamic"])
kubelets = st.sampled_from(["?", "unknown", "others", "pod", "pod-memory"])


@given(
    env=environments,
    listed=lists,
    spec=specs,
    kubelet=kubelets,
    state=st.sampled_from(ContainerState),
)
@settings(max_examples=300)
def test_no_environment_grants_what_root_owned_evidence_does_not(
    bed, *, env, listed, spec, kubelet, state
):
    _, cdi_list, evidence = scene(bed, None, listed, spec, kubelet)
    links = bed.links_of(env, cdi_list, evidence, state)
    in_spec = bed.cpus("0-3") if spec == "0-3" else bed.cpus("")
    for link in links.links:
        # No CPUs but the spec's, and only claim A has a spec.
        assert link.cpus <= (in_spec if link.claim_uid == bed.A else bed.cpus(""))
        if link.verdict.grants and link.cpus:
            assert listed in ("A", "meta") or (listed == "?" and kubelet == "pod")
        assert len(link.reason) < 2000
        assert link.reason.isprintable()
    # The environment can add a hint where the runtime reports nothing, and no CPUs elsewhere.
    if listed != "?":
        without = bed.links_of((), cdi_list, evidence, state)
        assert {k.claim_uid: k.cpus for k in links.granted if k.cpus} == {
            k.claim_uid: k.cpus for k in without.granted if k.cpus
        }


@given(env=environments, listed=lists, spec=specs, kubelet=kubelets, seed=st.integers(0, 2**32))
def test_the_order_of_everything_plays_no_role(bed, *, env, listed, spec, kubelet, seed):
    shuffle = random_module.Random(seed).shuffle
    _, cdi_list, evidence = scene(bed, None, listed, spec, kubelet)
    more = [bed.device_of(bed.B), "x/y=z", *(cdi_list or [])]
    first = bed.links_of(env, more, evidence)
    env, more = list(env), more * 2
    shuffle(env)
    shuffle(more)
    assert bed.links_of(env, more, evidence) == first


def test_every_combination_of_evidence_has_a_verdict_and_a_linker_gives_the_same_twice(bed):
    """No combination crashes, and one index serves any number of containers."""
    values = [None, "0-3", "4-7", "a-b"]
    listing = ["?", "none", "A", "B", "meta", "memory"]
    files = ["0-3", "gone", "broken", "twice", "unreadable", "dynamic"]
    holders = ["?", "unknown", "others", "pod", "pod-memory"]
    for row in product(values, listing, files, holders):
        env, cdi_list, evidence = scene(bed, *row)
        linker = Linker(evidence)
        container = bed.container(env, cdi_list)
        first = linker.link(bed.pod(), container)
        assert linker.link(bed.pod(), container) == first
        assert first == bed.links_of(env, cdi_list, evidence)
        pointed = row[0] is not None or row[1] in ("A", "meta", "memory")
        assert any(k.claim_uid == bed.A for k in first.links) == pointed
