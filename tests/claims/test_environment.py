"""Claim variables: the table of known spellings, hostile input, and independence of order."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nri_claim2core.claims.environment import MAX_NAMED, MAX_UIDS, parse_claim_env

A = "8d2b7a4e-5c1f-4f0b-9a34-7e6d0c1b2a93"
B = "0c9f1e2d-3b4a-4c5d-8e6f-708192a3b4c5"


def read(*entries):
    """(well-formed, malformed UIDs, names of variables that are not claims), as plain values."""
    env = parse_claim_env(entries)
    return (
        {uid: set(cpus) for uid, cpus in env.well_formed.items()},
        set(env.malformed),
        len(env.not_claims),
    )


@pytest.mark.parametrize(
    ("entry", "members"),
    [
        (f"DRA_CPUSET_{A}=0-3", {0, 1, 2, 3}),
        (f"DRA_CPUSET_{A}=3,2,1,0", {0, 1, 2, 3}),
        (f"DRA_CPUSET_{A}=0-1,1-2", {0, 1, 2}),
        (f"DRA_CPUSET_{A}=00-03", {0, 1, 2, 3}),
        (f"DRA_CPUSET_{A}=7", {7}),
    ],
)
def test_a_claim_with_its_cpus(entry, members):
    assert read(entry) == ({A: members}, set(), 0)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (f"DRA_CPUSET_{A}=", "empty list"),
        (f"DRA_CPUSET_{A}", "no `=`"),
        (f"DRA_CPUSET_{A}=dynamic", "no list of CPUs"),
        (f"DRA_CPUSET_{A}=a-b", "not a number"),
        (f"DRA_CPUSET_{A}=0-", "not a number"),
        (f"DRA_CPUSET_{A}=-1", "not a number"),
        (f"DRA_CPUSET_{A}=0--3", "not a number"),
        (f"DRA_CPUSET_{A}=3-0", "descends"),
        (f"DRA_CPUSET_{A}=0,,1", "empty element"),
        (f"DRA_CPUSET_{A}=0-1,", "empty element"),
        (f"DRA_CPUSET_{A}= 0-1", "not a number"),
        (f"DRA_CPUSET_{A}=0-7:2/4", "not a number"),
        (f"DRA_CPUSET_{A}=0-3=x", "not a number"),
        (f"DRA_CPUSET_{A}=\u0660-\u0663", "not a number"),
        (f"DRA_CPUSET_{A}=0-4000000000", "above 8191"),
        (f"DRA_CPUSET_{A}=0-3\x00", "not a number"),
        (f"DRA_CPUSET_{A}=\udcff", "not a number"),
        (f"DRA_CPUSET_{A}=" + "1," * 500_000, "longer than"),
    ],
    ids=lambda value: ascii(value)[12:70],
)
def test_a_malformed_variable_names_variable_value_and_rule(entry, words):
    assert read(entry) == ({}, {A}, 0)
    problem = parse_claim_env([entry]).malformed[A]
    assert problem.variable == f"DRA_CPUSET_{A}"
    assert words in problem.rule
    value = entry.partition("=")[2]
    assert problem.value.startswith(ascii(value)[:-1][:50] if "=" in entry else "")
    assert len(str(problem)) < 1200
    assert str(problem).isprintable()


@pytest.mark.parametrize(
    "entry",
    [
        "DRA_CPUSET=0-3",
        f"DRA_CPUSETX_{A}=0-3",
        "DRA_CPUSET",
        "DRA_CPUSET_ASSIGNED=0-3",
        "DRA_CPUSET_ASSIGNED=dynamic",
        "DRA_CPUSET_ASSIGNED",
        f"dra_cpuset_{A}=0-3",
        f"X=DRA_CPUSET_{A}=0-3",
        f" DRA_CPUSET_{A}=0-3",
        "DRA_BALLOON=x",
        "PATH=/bin",
        "",
        "=",
    ],
)
def test_other_variables_are_passed_over_in_silence(entry):
    assert read(entry) == ({}, set(), 0)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("DRA_CPUSET_=0-3", "empty"),
        (f"DRA_CPUSET_{A.upper()}=0-3", "lower case"),
        (f"DRA_CPUSET_{A[:-1]}=0-3", "no UUID"),
        (f"DRA_CPUSET_{A}0=0-3", "no UUID"),
        (f"DRA_CPUSET_claim-{A}=0-3", "no UUID"),
        ("DRA_CPUSET_assigned=0-3", "no UUID"),
        ("DRA_CPUSET_\x00\udcff=0-3", "no UUID"),
        ("DRA_CPUSET_" + "x" * 1_000_000, "no UUID"),
    ],
    ids=lambda value: ascii(value)[:60],
)
def test_a_look_alike_is_named_and_is_no_claim(entry, words):
    env = parse_claim_env([entry])
    assert (env.well_formed, env.malformed) == ({}, {})
    (problem,) = env.not_claims
    assert words in problem.rule
    assert str(problem).isprintable()
    assert len(str(problem)) < 600


def test_two_values_for_one_claim_are_a_conflict_that_names_both():
    for entries in ([f"DRA_CPUSET_{A}=0-3", f"DRA_CPUSET_{A}=4-7"],) * 2:
        assert read(*entries) == ({}, {A}, 0)
        problem = str(parse_claim_env(reversed(entries)).malformed[A])
        assert "0-3" in problem
        assert "4-7" in problem


def test_one_value_twice_is_one_value_however_it_is_written():
    assert read(f"DRA_CPUSET_{A}=0-1", f"DRA_CPUSET_{A}=1,0") == ({A: {0, 1}}, set(), 0)


def test_a_malformed_and_a_good_value_of_one_claim_are_malformed():
    for entries in ([f"DRA_CPUSET_{A}=0-1", f"DRA_CPUSET_{A}=x"],):
        assert read(*entries) == ({}, {A}, 0)
        assert read(*reversed(entries)) == ({}, {A}, 0)


def test_one_malformed_claim_leaves_the_other_alone():
    assert read(f"DRA_CPUSET_{A}=x", f"DRA_CPUSET_{B}=4") == ({B: {4}}, {A}, 0)


def test_look_alikes_are_named_up_to_a_limit_and_counted_beyond():
    entries = [f"DRA_CPUSET_{number}=0" for number in range(100)]
    env = parse_claim_env(entries)
    assert len(env.not_claims) == MAX_NAMED
    assert env.nr_not_claims == 100
    assert parse_claim_env(reversed(entries)) == env


def test_a_flood_of_variables_is_bounded_and_its_order_plays_no_role():
    entries = [f"DRA_CPUSET_{n:08x}-0000-4000-8000-000000000000={n % 64}" for n in range(5000)]
    env = parse_claim_env(entries)
    assert sorted(env.well_formed) == [e[11:47] for e in entries[:MAX_UIDS]]
    assert parse_claim_env(reversed(entries)) == env


def test_hostile_environments_cost_little_memory():
    flood = [f"DRA_CPUSET_{n:08x}-0000-4000-8000-000000000000=x" for n in range(40_000)]
    flood += [f"DRA_CPUSET_{n}=x" for n in range(40_000)]
    flood += [f"DRA_CPUSET_{A}=0-4000000000", f"DRA_CPUSET_{A}=" + "0-8191," * 9000]
    tracemalloc.start()
    try:
        parse_claim_env(flood)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3_000_000


uids = st.sampled_from([A, B, A.upper(), "ASSIGNED", ""])
values = st.one_of(
    st.sampled_from(["0-3", "3,2,1,0", "4", "dynamic", "x", ""]), st.text(max_size=8)
)
entries = st.lists(
    st.one_of(
        st.builds(lambda uid, value: f"DRA_CPUSET_{uid}={value}", uids, values),
        st.builds(lambda uid: f"DRA_CPUSET_{uid}", uids),
        st.text(max_size=60),
    ),
    max_size=8,
)


@given(entries, st.randoms())
def test_the_order_of_entries_plays_no_role(found, random):
    shuffled = list(found)
    random.shuffle(shuffled)
    assert parse_claim_env(shuffled) == parse_claim_env(found)


@given(entries)
def test_no_claim_is_both_well_formed_and_malformed_or_foreign_to_the_text(found):
    env = parse_claim_env(found)
    assert not set(env.well_formed) & set(env.malformed)
    for uid in {*env.well_formed, *env.malformed}:
        assert any(entry.startswith(f"DRA_CPUSET_{uid}") for entry in found)
    assert all(cpus for cpus in env.well_formed.values())
