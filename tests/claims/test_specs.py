"""What spec files are believed to say of a claim, and how each doubt is named."""

import pytest

from nri_claim2core.claims.specs import ClaimSpecs, SpecState
from nri_claim2core.model.evidence import Answer


def nri(uid, index):
    return f"topology-aware.nri.io/device=claim-{uid}-{index}"


def codes(answer):
    return [f.code for f in answer.findings]


def test_the_one_device_of_a_claim_names_file_device_and_value(bed):
    answer = ClaimSpecs(bed.snapshot(bed.spec(bed.A, "0-3"), bed.spec(bed.B, "8"))).ask(bed.A)
    assert answer.state is SpecState.PRESENT
    assert answer.evidence.answer is Answer.CONFIRMS
    assert answer.cpus == bed.cpus("0-3")
    for words in (f"claim-{bed.A}.json", bed.device_of(bed.A), f"DRA_CPUSET_{bed.A}=0-3"):
        assert words in answer.evidence.detail


def test_one_file_may_hold_every_claim(bed):
    one = "/var/run/cdi/dra.cpu.json"
    specs = ClaimSpecs(
        bed.snapshot(bed.spec(bed.A, "0-3", path=one), bed.spec(bed.B, "4-7", path=one))
    )
    assert (specs.ask(bed.A).cpus, specs.ask(bed.B).cpus) == (bed.cpus("0-3"), bed.cpus("4-7"))


def test_devices_of_one_claim_that_agree_are_one_answer(bed):
    same = [bed.spec(bed.A, value, name=nri(bed.A, i)) for i, value in enumerate(["0-1", "1,0"])]
    answer = ClaimSpecs(bed.snapshot(*same)).ask(bed.A)
    assert (answer.state, answer.cpus, codes(answer)) == (
        SpecState.PRESENT,
        bed.cpus("0-1"),
        [],
    )


def test_devices_of_one_claim_that_disagree_name_no_cpus(bed):
    differ = [bed.spec(bed.A, value, name=nri(bed.A, i)) for i, value in enumerate(["0", "1"])]
    answer = ClaimSpecs(bed.snapshot(*differ)).ask(bed.A)
    assert (answer.state, answer.evidence.answer) == (SpecState.UNUSABLE, Answer.UNAVAILABLE)
    assert (not answer.cpus, codes(answer)) == (True, ["C2C-CLAIM-24"])


def test_only_the_devices_a_container_has_are_looked_at(bed):
    specs = ClaimSpecs(
        bed.snapshot(bed.spec(bed.A, "0-1"), bed.spec(bed.A, "4-5", name=nri(bed.A, 0)))
    )
    assert specs.ask(bed.A, [nri(bed.A, 0)]).cpus == bed.cpus("4-5")
    assert specs.ask(bed.A, [bed.device_of(bed.A)]).cpus == bed.cpus("0-1")
    assert specs.ask(bed.A).state is SpecState.UNUSABLE


def test_an_answer_is_kept_for_all_devices_of_a_claim_and_for_no_fewer(bed):
    specs = ClaimSpecs(
        bed.snapshot(bed.spec(bed.A, "0-1"), bed.spec(bed.A, "0-1", name=nri(bed.A, 0)))
    )
    both = specs.ask(bed.A)
    assert specs.ask(bed.A, [nri(bed.A, 0), bed.device_of(bed.A)]) is both
    assert bed.device_of(bed.A) in both.evidence.detail
    assert bed.device_of(bed.A) not in specs.ask(bed.A, [nri(bed.A, 0)]).evidence.detail


def test_a_device_of_two_files_is_unusable_and_names_both(bed):
    files = ("/var/run/cdi/b.json", "/var/run/cdi/a.json")
    cdi = bed.snapshot(bed.spec(bed.B, "4"), conflicts={bed.device_of(bed.A): files})
    answer = ClaimSpecs(cdi).ask(bed.A)
    assert (answer.state, codes(answer)) == (SpecState.UNUSABLE, ["C2C-CLAIM-22"])
    assert "/var/run/cdi/a.json and /var/run/cdi/b.json" in answer.evidence.detail
    assert ClaimSpecs(cdi).ask(bed.B).cpus == bed.cpus("4")


def test_a_conflict_of_one_device_leaves_the_claims_others_usable(bed):
    cdi = bed.snapshot(
        bed.spec(bed.A, "0-1", name=nri(bed.A, 0)), conflicts={nri(bed.A, 1): ("/a", "/b")}
    )
    answer = ClaimSpecs(cdi).ask(bed.A)
    assert (answer.state, answer.cpus) == (SpecState.PRESENT, bed.cpus("0-1"))
    assert codes(answer) == ["C2C-CLAIM-22"]


@pytest.mark.parametrize(
    ("value", "words"),
    [("dynamic", "dynamic"), ("", "empty"), ("3-0", "descends"), ("0-7:1/2", "0-7:1/2")],
)
def test_a_spec_whose_own_variable_is_malformed_names_no_cpus(bed, value, words):
    answer = ClaimSpecs(bed.snapshot(bed.spec(bed.A, value))).ask(bed.A)
    assert (answer.state, codes(answer)) == (SpecState.UNUSABLE, ["C2C-CLAIM-23"])
    assert words in answer.evidence.detail
    assert f"claim-{bed.A}.json" in answer.evidence.detail


@pytest.mark.parametrize("other", ["FOO=1", "DRA_CPUSET_ASSIGNED=0-3"])
def test_a_spec_without_the_claims_variable_names_no_cpus(bed, other):
    answer = ClaimSpecs(bed.snapshot(bed.spec(bed.A, "", env=[other]))).ask(bed.A)
    assert (answer.state, codes(answer)) == (SpecState.UNUSABLE, ["C2C-CLAIM-23"])
    assert f"does not set DRA_CPUSET_{bed.A}" in answer.evidence.detail


def test_another_claims_variable_in_the_spec_is_not_this_claims(bed):
    answer = ClaimSpecs(
        bed.snapshot(bed.spec(bed.A, "", env=[bed.var(bed.B, "0-3"), bed.var(bed.A, "5")]))
    ).ask(bed.A)
    assert answer.cpus == bed.cpus("5")


def test_two_values_in_one_spec_name_no_cpus(bed):
    answer = ClaimSpecs(
        bed.snapshot(bed.spec(bed.A, "", env=[bed.var(bed.A, "0"), bed.var(bed.A, "1")]))
    ).ask(bed.A)
    assert (answer.state, codes(answer)) == (SpecState.UNUSABLE, ["C2C-CLAIM-23"])


def test_no_device_is_a_no_only_when_every_file_could_be_read(bed):
    assert ClaimSpecs(bed.snapshot()).ask(bed.A).state is SpecState.MISSING
    assert ClaimSpecs(bed.snapshot()).ask(bed.A).evidence.answer is Answer.DENIES
    half = ClaimSpecs(bed.snapshot(problems=[("/var/run/cdi/x.json", "half-written")])).ask(bed.A)
    assert (half.state, half.evidence.answer) == (SpecState.UNUSABLE, Answer.UNAVAILABLE)
    assert "/var/run/cdi/x.json" in half.evidence.detail
    assert "half-written" in half.evidence.detail


def test_the_broken_file_of_the_claim_itself_is_the_one_named(bed):
    mine = f"/var/run/cdi/dra.k8s.io-cpu_claim-{bed.A}.json"
    problems = [("/var/run/cdi/x.json", "not JSON"), (mine, "half-written")]
    answer = ClaimSpecs(bed.snapshot(problems=problems)).ask(bed.A)
    assert answer.evidence.detail == f"{mine} cannot be used: half-written"


def test_of_several_broken_files_one_is_named_and_the_others_counted(bed):
    problems = [(f"/var/run/cdi/{n}.json", "not JSON") for n in "xyz"]
    for count, ending in ((1, "not JSON"), (2, "(and 1 more)"), (3, "(and 2 more)")):
        answer = ClaimSpecs(bed.snapshot(problems=problems[:count])).ask(bed.A)
        assert "/var/run/cdi/x.json" in answer.evidence.detail
        assert answer.evidence.detail.endswith(ending)


def test_broken_files_leave_the_others_usable(bed):
    cdi = bed.snapshot(bed.spec(bed.A, "0-3"), problems=[("/var/run/cdi/x.json", "not JSON")])
    assert ClaimSpecs(cdi).ask(bed.A).cpus == bed.cpus("0-3")


def test_an_unreadable_directory_says_nothing(bed):
    answer = ClaimSpecs(bed.snapshot(readable=False)).ask(bed.A)
    assert (answer.state, answer.evidence.answer) == (SpecState.UNUSABLE, Answer.UNAVAILABLE)


@pytest.mark.parametrize(
    "kind", ["dra.k8s.io/memory=claim-{}", "balloons.nri.io/device=claim-{}-0"]
)
def test_devices_without_cpus_are_not_looked_at(bed, kind):
    device = bed.spec(bed.A, "0-3", name=kind.format(bed.A))
    assert ClaimSpecs(bed.snapshot(device)).ask(bed.A).state is SpecState.MISSING
