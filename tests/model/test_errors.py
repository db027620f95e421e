"""Errors carry code, message and hint, and never more of a foreign text than a line."""

import inspect

import pytest

from nri_claim2core.model import errors
from nri_claim2core.model.errors import Claim2CoreError, CpuListError, HostError


def test_the_hint_follows_the_message():
    assert str(Claim2CoreError("it broke", hint="mend it")) == "it broke (mend it)"
    assert str(Claim2CoreError("it broke")) == "it broke"


def test_a_code_of_its_own_replaces_the_code_of_the_family():
    assert Claim2CoreError("x").code == "C2C-GENERAL-00"
    assert Claim2CoreError("x", code="C2C-CDI-07").code == "C2C-CDI-07"
    assert Claim2CoreError.code == "C2C-GENERAL-00"


def test_a_host_error_says_where_and_why():
    error = HostError("cannot write", path="/sys/x", errno=13, hint="run as root")
    assert (error.path, error.errno, error.hint) == ("/sys/x", 13, "run as root")


def test_every_family_has_a_code_that_is_its_own():
    families = [
        member
        for _, member in inspect.getmembers(errors, inspect.isclass)
        if issubclass(member, Claim2CoreError)
    ]
    codes = [family.code for family in families]
    assert {errors.PeerError, HostError, CpuListError} <= set(families)
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("text", ["x" * 100_000, "\x00" * 100_000, "\udc80" * 100_000])
def test_a_list_error_quotes_a_line_of_a_long_list_and_can_be_encoded(text):
    error = CpuListError(text, f"{text!r} is not a number")
    assert len(str(error)) < 1000
    assert str(error).encode("utf-8")
    assert "..." in str(error)
