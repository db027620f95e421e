"""CpuSet against Python sets, the two list grammars against hand tables and the kernel's output.

Second sources: `set` for the algebra, texts generated from sets for the parsers, the kernel's
own pairs of hex mask and list in /proc/<pid>/status and /sys for the formats.
"""

import contextlib
import os
import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nri_claim2core.model.cpuset import (
    MAX_CPUS,
    MAX_LIST_BYTES,
    CpuSet,
    parse_hex,
    parse_kernel,
    parse_kubernetes,
    union,
)
from nri_claim2core.model.errors import CpuListError

cpu_numbers = st.one_of(st.integers(0, 40), st.integers(0, MAX_CPUS - 1))
cpu_sets = st.frozensets(cpu_numbers, max_size=40)


def written_out(members):
    """Canonical text from a set, by a walk over neighbors."""
    parts, run = [], []
    for cpu in [*sorted(members), None]:
        if run and cpu != run[-1] + 1:
            parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
            run = []
        run.append(cpu)
    return ",".join(parts)


# --- algebra -------------------------------------------------------------------------------


@given(cpu_sets, cpu_sets)
def test_algebra_is_that_of_sets(a, b):
    x, y = CpuSet(a), CpuSet(b)
    assert set(x | y) == a | b
    assert set(x & y) == a & b
    assert set(x - y) == a - b
    assert (x <= y) == (a <= b)
    assert x.isdisjoint(y) == a.isdisjoint(b)
    assert (x == y) == (a == b)
    assert (hash(x) == hash(y)) or a != b
    assert len(x) == len(a)
    assert bool(x) == bool(a)
    assert set(union([x, y, x])) == a | b
    assert all(cpu in x for cpu in a)
    assert not any(cpu in x for cpu in b - a)


@given(cpu_sets)
def test_text_is_canonical_and_members_ascend(a):
    x = CpuSet(a)
    assert str(x) == written_out(a)
    assert list(x) == sorted(a)
    assert CpuSet.from_mask(sum(1 << cpu for cpu in a)) == x
    assert x.mask == sum(1 << cpu for cpu in a)


def test_union_of_nothing_is_empty():
    assert union([]) == CpuSet()


@pytest.mark.parametrize("members", [[-1], [MAX_CPUS], [0, 10**12]])
def test_numbers_beyond_the_bounds_are_refused(members):
    with pytest.raises(CpuListError, match=str(members[-1])):
        CpuSet(members)


@pytest.mark.parametrize("mask", [-1, 1 << MAX_CPUS])
def test_masks_beyond_the_bounds_are_refused(mask):
    with pytest.raises(CpuListError):
        CpuSet.from_mask(mask)


def test_membership_of_numbers_that_no_cpu_has():
    assert -1 not in CpuSet([0])
    assert 10**9 not in CpuSet([0])


def test_a_set_equals_nothing_but_a_set():
    assert CpuSet([0]) != {0}
    assert CpuSet([0]) != "0"


# --- Kubernetes' grammar -------------------------------------------------------------------

KUBERNETES_VALID = [
    ("", set()),
    ("0", {0}),
    ("0-3", {0, 1, 2, 3}),
    ("0,2-3", {0, 2, 3}),
    ("3,1", {1, 3}),
    ("3,2,1,0", {0, 1, 2, 3}),
    ("0-0", {0}),
    ("0-2,1-4", {0, 1, 2, 3, 4}),
    ("00-03", {0, 1, 2, 3}),
    ("007", {7}),
    ("8191", {8191}),
    ("0" * 50 + "1", {1}),
    ("0" * (MAX_LIST_BYTES - 1) + "1", {1}),
]

KUBERNETES_INVALID = [
    *(" 0-1", "0-1 ", "0-1\n", "0 -1", "\t0", "0-7:1/2", "0-7:2/4", "5:1/2", "7-0", "3-0", "-1"),
    *("1-", "0-", "a", "a-b", "0x3", "1--3", "0--3", "0,,1", "0-1,", ",0", ",", "-", "all", "N"),
    *("0-3=x", "+1", "1_0", "1-2-3", "0-4000000000", "4000000000", "8192", "0-8192"),
    *("\u0661", "\uff11", "\u00b2", "1\u0660", "\x00", "0\x00", "0-1\x00", "\udc80", "1.0", "1e3"),
    *("9" * 5000, "0-" + "9" * 5000),
]


@pytest.mark.parametrize(("text", "members"), KUBERNETES_VALID, ids=lambda v: ascii(v)[:20])
def test_kubernetes_lists(text, members):
    assert set(parse_kubernetes(text)) == members


@pytest.mark.parametrize("text", KUBERNETES_INVALID, ids=ascii)
def test_what_is_no_kubernetes_list_is_refused_with_a_rule(text):
    with pytest.raises(CpuListError) as caught:
        parse_kubernetes(text)
    assert caught.value.rule
    assert caught.value.code == "C2C-CPUSET-01"
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3-0", "range 3-0 descends"),
        ("0,,1", "empty element"),
        ("0-1,", "empty element"),
        ("a-b", "not a number"),
        ("0-4000000000", "above 8191"),
        ("0" * (MAX_LIST_BYTES + 1), "longer than"),
    ],
    ids=["descends", "two commas", "last comma", "letters", "four billion", "long"],
)
def test_the_rule_says_what_is_wrong(text, words):
    with pytest.raises(CpuListError, match=words):
        parse_kubernetes(text)


runs = st.lists(st.tuples(cpu_numbers, st.integers(0, 20)), max_size=12).map(
    lambda pairs: [(a, min(a + n, MAX_CPUS - 1)) for a, n in pairs]
)


@given(runs)
def test_any_order_and_overlap_of_runs_reads_as_their_union(pairs):
    text = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in pairs)
    members = {cpu for a, b in pairs for cpu in range(a, b + 1)}
    assert set(parse_kubernetes(text)) == members
    assert set(parse_kernel(text)) == members


@given(cpu_sets)
def test_canonical_text_reads_back(a):
    assert set(parse_kubernetes(written_out(a))) == a
    assert set(parse_kernel(written_out(a) + "\n")) == a


SHAPE = re.compile(r"(?:[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*)?", re.ASCII)


@given(st.text(alphabet="0123456789,- :/aN\n+_\u0661", max_size=12))
def test_no_other_text_is_a_kubernetes_list(text):
    fits = SHAPE.fullmatch(text) is not None and all(
        int(part.split("-")[0]) <= int(part.split("-")[-1]) < MAX_CPUS
        for part in text.split(",")
        if part
    )
    if fits:
        parse_kubernetes(text)
    else:
        with pytest.raises(CpuListError):
            parse_kubernetes(text)


@given(st.one_of(st.text(max_size=40), st.text(alphabet="0123456789-,:/ N", max_size=30)))
def test_no_text_does_worse_than_a_named_error(text):
    for parse in (parse_kubernetes, parse_kernel, parse_hex):
        with contextlib.suppress(CpuListError):
            assert isinstance(parse(text), CpuSet)


def test_a_value_costs_no_memory_for_what_it_says():
    tracemalloc.start()
    try:
        for text in ("0-4000000000", "0-" + "9" * 60000, "9" * 10_000_000, "0-8191," * 9000):
            with pytest.raises(CpuListError):
                parse_kubernetes(text)
        parse_kernel("0-8191:1/1," * 5000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The longest text, made twice while it is tested, is 10 MB of this.
    assert peak < 25_000_000


# --- the kernel's grammar ------------------------------------------------------------------

KERNEL_VALID = [
    ("", set()),
    ("\n", set()),
    ("0-3\n", {0, 1, 2, 3}),
    (" 0-1", {0, 1}),
    ("0-1 ", {0, 1}),
    ("0-1\n7", {0, 1}),
    ("0,,1", {0, 1}),
    (",0-1,", {0, 1}),
    ("0 1\t2", {0, 1, 2}),
    ("007", {7}),
    ("0-7:1/2", {0, 2, 4, 6}),
    ("0-7:2/4", {0, 1, 4, 5}),
    ("0-9:1/3", {0, 3, 6, 9}),
    ("0-1023:2/256", {0, 1, 256, 257, 512, 513, 768, 769}),
    ("3-12:2/5", {3, 4, 8, 9}),
    ("0-4:4/4", {0, 1, 2, 3, 4}),
    ("0-5:4/3000", {0, 1, 2, 3}),
    ("0-7:0/2", set()),
]

KERNEL_INVALID = [
    *("7-0", "-1", "1-", "a", "0x3", "1--3", "5:1/2", "0-7:1", "0-7:/2", "0-7:1/", "0-7:3/2"),
    *("0-7:1/0", "0-7:1/2/3", "8192", "0-4000000000", "+1", "1_0", "\u0661", "0-\u00b2", "n"),
    *("0\x00", "all-3", "0-all"),
]


@pytest.mark.parametrize(("text", "members"), KERNEL_VALID)
def test_kernel_lists(text, members):
    assert set(parse_kernel(text)) == members


@pytest.mark.parametrize("text", KERNEL_INVALID, ids=ascii)
def test_what_is_no_kernel_list_is_refused(text):
    with pytest.raises(CpuListError):
        parse_kernel(text)


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("all", set(range(6))),
        ("ALL", set(range(6))),
        ("all:1/2", {0, 2, 4}),
        ("N", {5}),
        ("2-N", {2, 3, 4, 5}),
        ("0-N:1/4", {0, 4}),
        ("5", {5}),
    ],
)
def test_words_of_the_kernel_depend_on_the_number_of_cpus(text, members):
    assert set(parse_kernel(text, nr_cpus=6)) == members


def test_a_cpu_beyond_the_last_is_out_of_range():
    with pytest.raises(CpuListError, match="number of CPUs, 6"):
        parse_kernel("6", nr_cpus=6)


@given(
    st.integers(0, 300),
    st.integers(0, 300),
    st.integers(1, 40),
    st.integers(0, 40),
)
def test_strides_take_the_first_of_every_group(low, length, group, used):
    used = min(used, group)
    members = {low + i for i in range(length + 1) if i % group < used}
    assert set(parse_kernel(f"{low}-{low + length}:{used}/{group}")) == members


# --- hex masks, and the kernel as witness ---------------------------------------------------

HEX = [
    ("0", set()),
    ("00000000\n", set()),
    ("3", {0, 1}),
    ("f0", {4, 5, 6, 7}),
    ("00000001,00000000", {32}),
    ("1,00000000,00000005", {0, 2, 64}),
    ("0x8", {3}),
    ("100000000", {32}),
]


@pytest.mark.parametrize(("text", "members"), HEX)
def test_hex_masks(text, members):
    assert set(parse_hex(text)) == members


@pytest.mark.parametrize("text", ["", "g", "1,,2", "1,123456789", "-1", "0-3", "f" * 2100, "1_0"])
def test_what_is_no_hex_mask_is_refused(text):
    with pytest.raises(CpuListError):
        parse_hex(text)


@given(cpu_sets)
def test_hex_groups_are_those_of_the_number(a):
    number = sum(1 << cpu for cpu in a)
    text = CpuSet(a).to_hex()
    assert int(text.replace(",", ""), 16) == number
    assert all(len(group) == 8 for group in text.split(","))
    assert set(parse_hex(text)) == a


def kernel_pairs():
    """Pairs of (hex mask, list) as this kernel prints them for one and the same set."""
    status = Path("/proc/self/status").read_text()
    for what in ("Cpus", "Mems"):
        mask, text = (
            re.search(rf"^{what}_allowed{suffix}:\t(.*)$", status, re.MULTILINE)[1]
            for suffix in ("", "_list")
        )
        yield mask, text
    for directory in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology"):
        for file in directory.glob("*_list"):
            plain = file.with_name(file.name.removesuffix("_list"))
            plain = plain if plain.exists() else Path(f"{plain}s")
            if plain.exists():
                yield plain.read_text(), file.read_text()


def test_masks_and_lists_of_this_kernel_are_the_same_sets():
    pairs = list(kernel_pairs())
    assert len(pairs) >= 2
    for mask, text in pairs:
        assert parse_hex(mask) == parse_kernel(text)
        assert str(parse_kernel(text)) == text.strip()


def test_every_affinity_this_process_can_have_is_printed_as_we_print_it():
    """The kernel's own formatter is the oracle for ours: set an affinity, read it back."""
    before = os.sched_getaffinity(0)
    choices = [{cpu} for cpu in before] + [before] + [set(sorted(before)[::2])]
    try:
        for cpus in choices:
            os.sched_setaffinity(0, cpus)
            status = Path("/proc/thread-self/status").read_text()
            text = re.search(r"^Cpus_allowed_list:\t(.*)$", status, re.MULTILINE)[1]
            assert str(CpuSet(cpus)) == text
            assert set(parse_kernel(text)) == cpus
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize("name", ["online", "possible", "present", "offline", "isolated"])
def test_cpu_state_files_of_this_machine_read(name):
    file = Path("/sys/devices/system/cpu") / name
    if not file.exists():
        pytest.skip(f"this kernel has no {file}")
    text = file.read_text()
    assert str(parse_kernel(text)) == text.strip()


def test_the_online_file_counts_what_the_c_library_counts():
    online = parse_kernel(Path("/sys/devices/system/cpu/online").read_text())
    assert len(online) == os.sysconf("SC_NPROCESSORS_ONLN")
