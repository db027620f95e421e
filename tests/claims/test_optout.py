"""The opt-out annotation: values, scope, and that the keys are ones Kubernetes accepts."""

import re

import pytest

from nri_claim2core.claims.optout import PRESERVE_ANNOTATION, read_opt_out

POD = PRESERVE_ANNOTATION
SOLVER = f"{PRESERVE_ANNOTATION}/container.solver"
OTHER = f"{PRESERVE_ANNOTATION}/container.other"


@pytest.mark.parametrize(
    ("annotations", "preserved", "by"),
    [
        ({}, False, ""),
        ({POD: "true"}, True, POD),
        ({POD: "false"}, False, POD),
        ({SOLVER: "true"}, True, SOLVER),
        ({OTHER: "true"}, False, ""),
        ({POD: "true", SOLVER: "false"}, False, SOLVER),
        ({POD: "false", SOLVER: "true"}, True, SOLVER),
        ({POD: "true", OTHER: "false"}, True, POD),
        ({"x." + POD: "true"}, False, ""),
    ],
)
def test_who_is_left_alone(annotations, preserved, by):
    opt_out = read_opt_out(annotations, "solver")
    assert (opt_out.preserved, opt_out.annotation, opt_out.findings) == (preserved, by, ())


@pytest.mark.parametrize("value", ["", "True", "yes", "1", " true", "\x00" * 1000])
def test_another_value_is_ignored_and_named(value):
    opt_out = read_opt_out({POD: value}, "solver")
    assert not opt_out.preserved
    assert [f.code for f in opt_out.findings] == ["C2C-ENV-02"]
    assert POD in opt_out.findings[0].message
    assert opt_out.findings[0].message.isprintable()


def test_a_bad_value_for_the_container_leaves_the_pods_in_force():
    opt_out = read_opt_out({POD: "true", SOLVER: "maybe"}, "solver")
    assert opt_out.preserved
    assert [f.code for f in opt_out.findings] == ["C2C-ENV-02"]


@pytest.mark.parametrize("key", [POD, f"{POD}/container.{'a' * 53}"])
def test_kubernetes_accepts_the_keys(key):
    """Qualified name: optional DNS subdomain of <= 253 and a slash, then a name of <= 63."""
    prefix, slash, name = key.rpartition("/")
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", name)
    assert len(name) <= 63
    if slash:
        assert re.fullmatch(
            r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", prefix
        )
        assert len(prefix) <= 253
