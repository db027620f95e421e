"""The words of each source: what `explain` prints is exact, short, and names what it speaks of."""

import pytest

from nri_claim2core.claims.environment import parse_claim_env
from nri_claim2core.claims.sources import (
    Held,
    Listed,
    Said,
    ask_checkpoint,
    ask_device_list,
    ask_environment,
    read_device_list,
)
from nri_claim2core.model.evidence import CheckpointSnapshot


def nri(uid, index):
    return f"topology-aware.nri.io/device=claim-{uid}-{index}"


def test_what_the_runtimes_list_says(bed):
    def said(names):
        answer = ask_device_list(read_device_list(names), bed.A)
        return answer.state, answer.evidence.detail

    memory = f"dra.k8s.io/memory=claim-{bed.A}"
    cpu = bed.device_of(bed.A)
    assert said(None) == (Listed.UNREPORTED, "this runtime does not report CDI devices to plugins")
    assert said([]) == (Listed.ABSENT, "the runtime gives the container no CDI device")
    assert said(["x/y=1", "x/y=2", "x/y=1"]) == (
        Listed.ABSENT,
        "none of the 2 CDI devices of the container is of this claim",
    )
    assert said([memory, cpu]) == (Listed.NAMED, f"the runtime gives the container {cpu}")
    assert said([memory]) == (
        Listed.OTHER_DEVICES,
        f"the runtime gives the container {memory}, which comes without CPUs",
    )


@pytest.mark.parametrize(("count", "ending"), [(1, "-0"), (2, "-0, {}-1"), (4, " and 2 more")])
def test_a_long_list_is_named_in_part(bed, count, ending):
    names = [nri(bed.A, i) for i in range(count)]
    detail = ask_device_list(read_device_list(names), bed.A).evidence.detail
    assert detail.endswith(ending.format(nri(bed.A, 0)[:-2]))


def test_what_kubelet_says(bed):
    def said(checkpoint):
        answer = ask_checkpoint(checkpoint, bed.A, bed.POD)
        return answer.state, answer.evidence.detail

    assert said(bed.NO_CHECKPOINT) == (
        Held.UNAVAILABLE,
        "kubelet's checkpoint: /var/lib/kubelet/dra_manager_state: no such file",
    )
    assert said(CheckpointSnapshot(readable=False)) == (
        Held.UNAVAILABLE,
        "kubelet's checkpoint: not readable",
    )
    assert said(bed.checkpoint(bed.held(bed.B))) == (
        Held.UNKNOWN_CLAIM,
        "kubelet's checkpoint has no claim of this UID",
    )
    name = "kubelet's checkpoint has claim batch/cores"
    assert said(bed.checkpoint(bed.held(bed.A, pods=["x", "y"]))) == (
        Held.BY_OTHERS,
        f"{name}, held by 2 other pods and not by pod {bed.POD!r}",
    )
    assert said(bed.checkpoint(bed.held(bed.A))) == (
        Held.BY_POD,
        f"{name}, held by this pod, with {bed.device_of(bed.A)}",
    )


@pytest.mark.parametrize("cdi_ids", [[], ["v/c=x y"], ["dra.k8s.io/memory=claim-{A}"]])
def test_a_pods_claim_without_a_cpu_device_proves_no_cpus(bed, cdi_ids):
    ids = [text.format(A=bed.A) for text in cdi_ids]
    answer = ask_checkpoint(bed.checkpoint(bed.held(bed.A, cdi_ids=ids)), bed.A, bed.POD)
    assert answer.state is Held.BY_POD_NO_CPUS
    assert answer.evidence.detail.endswith(f"no CPU device among its {len(ids)} CDI ids")


def test_another_claims_device_id_proves_nothing_of_this_one(bed):
    wrong = bed.held(bed.A, cdi_ids=[bed.device_of(bed.B)])
    assert ask_checkpoint(bed.checkpoint(wrong), bed.A, bed.POD).state is Held.BY_POD_NO_CPUS


def test_a_static_pods_uid_is_no_claim_holder(bed):
    kubelet = bed.checkpoint(bed.held(bed.A))
    answer = ask_checkpoint(kubelet, bed.A, "0123456789abcdef0123456789abcdef")
    assert answer.state is Held.BY_OTHERS


def test_a_pod_that_is_not_known_is_no_proof_of_forgery(bed):
    kubelet = bed.checkpoint(bed.held(bed.A))
    assert ask_checkpoint(kubelet, bed.A, "").state is Held.UNAVAILABLE
    # What kubelet does not know it does not know for any pod.
    assert ask_checkpoint(kubelet, bed.B, "").state is Held.UNKNOWN_CLAIM


@pytest.mark.parametrize(
    ("value", "spec", "state", "detail"),
    [
        ("0-3", "0-3", Said.SAME, "{V}=0-3"),
        ("1,0", "0-1", Said.SAME, "{V}=0-1"),
        ("4", "0-3", Said.OTHER, "{V}=4, but the CDI spec says 0-3"),
        ("4", "", Said.OTHER, "{V}=4, and no spec to compare with"),
        (None, "0-3", Said.NOTHING, "{V} is not set"),
        ("x", "0-3", Said.MALFORMED, "{V}='x': 'x' is not a number or a range of ASCII digits"),
    ],
)
def test_what_the_environment_says(bed, value, spec, state, detail):
    env = parse_claim_env([] if value is None else [bed.var(bed.A, value)])
    answer = ask_environment(env, bed.A, bed.cpus(spec))
    assert answer.state is state
    assert answer.evidence.detail == detail.format(V=f"DRA_CPUSET_{bed.A}")
