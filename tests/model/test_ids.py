"""Claim UIDs are lower-case UUIDs and nothing else; the uuid module is the second source."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nri_claim2core.model.ids import UUID_LENGTH, maybe_claim_uid

UID = "8d2b7a4e-5c1f-4f0b-9a34-7e6d0c1b2a93"


@given(st.uuids())
def test_every_uuid_as_python_writes_it_is_a_claim_uid(value):
    assert maybe_claim_uid(str(value)) == str(value)
    assert len(str(value)) == UUID_LENGTH


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ASSIGNED",
        UID.upper(),
        UID.replace("d", "D", 1),
        UID[:-1],
        UID + "0",
        UID + "\n",
        " " + UID,
        UID.replace("-", ""),
        UID.replace("-", "_"),
        "{" + UID + "}",
        "urn:uuid:" + UID,
        UID.replace("8", "g", 1),
        UID.replace("8", "\uff18", 1),
        "GPU-" + UID,
        UID[:8] + UID[9:13] + "-" + UID[13:],
        "-" * 36,
    ],
    ids=ascii,
)
def test_everything_else_is_none(text):
    assert maybe_claim_uid(text) is None


@given(st.text(max_size=40))
def test_what_is_accepted_is_a_uuid_to_the_uuid_module(text):
    if maybe_claim_uid(text) is not None:
        assert str(uuid.UUID(text)) == text
