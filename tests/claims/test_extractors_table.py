"""Which device names name a claim, and which only look as if they did."""

import pytest

from nri_claim2core.claims.cdi_names import CdiNameError, parse_cdi_name
from nri_claim2core.claims.extractors_table import maybe_named_claim

U = "8d2b7a4e-5c1f-4f0b-9a34-7e6d0c1b2a93"
U2 = "0c9f1e2d-3b4a-4c5d-8e6f-708192a3b4c5"
VARIABLE = f"DRA_CPUSET_{U}"


@pytest.mark.parametrize(
    ("text", "driver", "holds_cpus", "variable"),
    [
        (f"dra.k8s.io/cpu=claim-{U}", "dra.cpu", True, VARIABLE),
        (f"dra.cpu/metadata={U}_cores", "dra.cpu", True, ""),
        (f"dra.cpu/metadata={U}_a_b", "dra.cpu", True, ""),
        (f"dra.k8s.io/memory=claim-{U}", "dra.memory", False, ""),
        (f"topology-aware.nri.io/device=claim-{U}-0", "topology-aware.nri.io", True, VARIABLE),
        (f"topology-aware.nri.io/device=claim-{U}-11", "topology-aware.nri.io", True, VARIABLE),
        (f"template.nri.io/device=claim-{U}-3", "template.nri.io", True, VARIABLE),
        (f"balloons.nri.io/device=claim-{U}-0", "balloons.nri.io", False, ""),
    ],
)
def test_names_of_known_drivers(text, driver, holds_cpus, variable):
    named = maybe_named_claim(parse_cdi_name(text))
    assert named is not None
    assert (named.uid, named.driver) == (U, driver)
    assert (named.holds_cpus, named.cpu_variable) == (holds_cpus, variable)


@pytest.mark.parametrize(
    "text",
    [
        # The same drivers, another form.
        f"dra.k8s.io/cpu={U}",
        f"dra.k8s.io/cpu=claim-{U}-0",
        f"dra.k8s.io/cpu=claim-{U.upper()}",
        f"dra.k8s.io/cpu=claim-{U[:-1]}",
        f"dra.k8s.io/cpu=claim-{U}0",
        f"dra.k8s.io/cpu=x-claim-{U}",
        f"dra.k8s.io/gpu=claim-{U}",
        f"evil.dra.k8s.io/cpu=claim-{U}",
        f"dra.k8s.io.evil/cpu=claim-{U}",
        f"Dra.k8s.io/cpu=claim-{U}",
        f"dra.cpu/cpu=claim-{U}",
        f"dra.cpu/metadata={U}",
        f"dra.cpu/metadata=x{U}_cores",
        f"topology-aware.nri.io/device=claim-{U}",
        f"topology-aware.nri.io/device=claim-{U}-x1",
        f"topology-aware.nri.io/device=claim-{U}-0-1",
        f"topology-aware.nri.io/device=claim-{U}x-1",
        "topology-aware.nri.io/device=gpu0",
        "topology-aware.nri.io/device=claim-0",
        "topology-aware.nri.io/device=claim--0",
        f"topology-aware.nri.io/cpu=claim-{U}-0",
        f"nri.io/device=claim-{U}-0",
        f"xnri.io/device=claim-{U}-0",
        f"topology-aware.nri.io.evil/device=claim-{U}-0",
        # Other drivers, whose UUIDs may be anything.
        f"sriovnetwork.k8snetworkplumbingwg.io/vf={U}",
        f"k8s.gpu.example.com/gpu={U}-gpu-3-{U2}",
        f"nvidia.com/gpu=GPU-{U}",
        "k8s.compute-domain.nvidia.com/device=all",
        "k8s.gpu.example.com/gpu=common",
        "intel.com/gpu=0000-00-02-0-0xa7a0",
        f"intel.com/gaudi={U}",
    ],
)
def test_traps_name_no_claim(text):
    assert maybe_named_claim(parse_cdi_name(text)) is None


@pytest.mark.parametrize("text", [f"topology-aware.nri.io/device=claim-{U}-", "/dev/null", "gpu0"])
def test_some_traps_are_no_names_at_all(text):
    with pytest.raises(CdiNameError):
        parse_cdi_name(text)
