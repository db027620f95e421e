"""CpuSet: one immutable set of CPU (or memory node) numbers, and the two grammars it is written in.

The set is an int used as a bit mask, so union, difference and subset of 8,192 CPUs are single
big-int operations. Two parsers, because two grammars exist and mixing them is how traps are
made (kernel: blanks, strides, `all`; Kubernetes: none of it). Both check the size *before* a
range is expanded - `0-4000000000` must cost nothing - and take ASCII digits only.

Canonical text is Kubernetes' and the kernel's own output form: ascending, runs of two or more
as `a-b`, no blanks, empty string for the empty set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from nri_claim2core.model.errors import CpuListError

MAX_CPUS: Final = 8192
"""CPU numbers must be below this: the largest NR_CPUS that distributions build (x86, arm64)."""

MAX_LIST_BYTES: Final = 65536
"""Longest list text that is looked at; 8,192 single CPUs written out need 39 KiB."""

_NUMBER = re.compile(r"[0-9]+", re.ASCII)
_BLANKS = re.compile(r"[ \t\v\f\r\n]+", re.ASCII)


class CpuSet:
    """An immutable, hashable set of CPU numbers; iterates ascending."""

    __slots__ = ("_mask",)
    _mask: int

    def __init__(self, cpus: Iterable[int] = ()) -> None:
        mask = 0
        for cpu in cpus:
            if not 0 <= cpu < MAX_CPUS:
                raise CpuListError(str(cpu), f"a CPU number is 0 to {MAX_CPUS - 1}")
            mask |= 1 << cpu
        self._mask = mask

    @classmethod
    def from_mask(cls, mask: int) -> CpuSet:
        """Give the set whose members are the one bits of `mask`."""
        if mask < 0 or mask >> MAX_CPUS:
            raise CpuListError(hex(mask), f"a mask has bits 0 to {MAX_CPUS - 1}")
        made = cls.__new__(cls)
        made._mask = mask  # noqa: SLF001 - own class
        return made

    @property
    def mask(self) -> int:
        """The members as one bits."""
        return self._mask

    def __len__(self) -> int:
        return self._mask.bit_count()

    def __bool__(self) -> bool:
        return self._mask != 0

    def __iter__(self) -> Iterator[int]:
        for first, last in self.runs():
            yield from range(first, last + 1)

    def __contains__(self, cpu: int) -> bool:
        return cpu >= 0 and bool(self._mask >> cpu & 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CpuSet) and self._mask == other._mask

    def __hash__(self) -> int:
        return hash(self._mask)

    def __or__(self, other: CpuSet) -> CpuSet:
        return CpuSet.from_mask(self._mask | other._mask)

    def __and__(self, other: CpuSet) -> CpuSet:
        return CpuSet.from_mask(self._mask & other._mask)

    def __sub__(self, other: CpuSet) -> CpuSet:
        return CpuSet.from_mask(self._mask & ~other._mask)

    def __le__(self, other: CpuSet) -> bool:
        """Tell whether every member is in `other`."""
        return self._mask & ~other._mask == 0

    def isdisjoint(self, other: CpuSet) -> bool:
        """Tell whether no member is in `other`."""
        return self._mask & other._mask == 0

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield maximal runs as (first, last), ascending."""
        rest, base = self._mask, 0
        while rest:
            zeros = (rest & -rest).bit_length() - 1
            rest >>= zeros
            ones = (~rest & (rest + 1)).bit_length() - 1
            yield base + zeros, base + zeros + ones - 1
            rest >>= ones
            base += zeros + ones

    def __str__(self) -> str:
        """Canonical list text: `0-3,8`; the empty set is the empty string."""
        return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in self.runs())

    def __repr__(self) -> str:
        return f"CpuSet({str(self)!r})"

    def to_hex(self) -> str:
        """Hex mask as the kernel prints it: 32-bit groups, most significant first, by commas."""
        groups = max(1, (self._mask.bit_length() + 31) // 32)
        return ",".join(f"{self._mask >> 32 * i & 0xFFFFFFFF:08x}" for i in reversed(range(groups)))


def union(sets: Iterable[CpuSet]) -> CpuSet:
    """Give every number that is in at least one of the sets."""
    mask = 0
    for one in sets:
        mask |= one.mask
    return CpuSet.from_mask(mask)


def parse_kubernetes(text: str) -> CpuSet:
    """Read the grammar of Kubernetes' cpuset package: `0-3,8`, nothing else.

    No blanks, signs, strides or empty elements; a range must ascend. The empty text is the
    empty set. Leading zeros are numbers, as for Go's Atoi.

    Raises: CpuListError naming the rule.
    Source: k8s.io/utils/cpuset Parse; narrower where that would expand without bound.
    """
    if not text:
        return CpuSet()
    _check_length(text)
    mask = 0
    for element in text.split(","):
        if not element:
            raise CpuListError(text, "has an empty element (two commas, or one at an end)")
        first, dash, last = element.partition("-")
        low = _number(text, element, first)
        mask |= _span(text, low, _number(text, element, last) if dash else low)
    return CpuSet.from_mask(mask)


def parse_kernel(text: str, *, nr_cpus: int = MAX_CPUS) -> CpuSet:
    """Read the kernel's list grammar, as in cpuset files and under /sys.

    Commas and blanks separate, repeated or at the ends; a newline ends the list; `a-b:used/group`
    takes the first `used` of every `group`; `all` is 0 to nr_cpus-1 and `N` the last CPU.

    Raises: CpuListError naming the rule.
    Source: lib/bitmap-str.c bitmap_parselist().
    """
    _check_length(text)
    mask = 0
    body = text.split("\n", 1)[0]
    for element in _BLANKS.sub(",", body).split(","):
        if element:
            mask |= _kernel_element(text, element, nr_cpus)
    return CpuSet.from_mask(mask)


def parse_hex(text: str) -> CpuSet:
    """Read a hex mask as the kernel prints it (`ff,00000000`), with or without a newline.

    Raises: CpuListError.
    """
    _check_length(text)
    body = text.strip().removeprefix("0x")
    groups = body.split(",")
    if not all(re.fullmatch(r"[0-9a-fA-F]+", g, re.ASCII) for g in groups):
        raise CpuListError(text, "is not a hex mask")
    if len(groups) > 1 and any(len(g) > 8 for g in groups):  # noqa: PLR2004 - 32 bits
        raise CpuListError(text, "has a group of more than 32 bits")
    digits = groups[0] + "".join(g.rjust(8, "0") for g in groups[1:])
    return CpuSet.from_mask(int(digits, 16))


def _kernel_element(text: str, element: str, nr_cpus: int) -> int:
    span, colon, stride = element.partition(":")
    first, dash, last = span.partition("-")
    if span.lower() == "all":
        low, high, dash = 0, nr_cpus - 1, "-"
    else:
        low = _kernel_number(text, element, first, nr_cpus)
        high = _kernel_number(text, element, last, nr_cpus) if dash else low
    if high >= nr_cpus:
        raise CpuListError(text, f"{high} is not below the number of CPUs, {nr_cpus}")
    whole = _span(text, low, high)
    if not colon:
        return whole
    if not dash:
        raise CpuListError(text, f"{element!r} has a stride but no range")
    used_text, slash, group_text = stride.partition("/")
    if not slash:
        raise CpuListError(text, f"{element!r}: a stride is used/group")
    used, group = _number(text, element, used_text), _number(text, element, group_text)
    if group == 0 or used > group:
        raise CpuListError(text, f"{element!r}: a stride takes at most `group` of every `group`")
    nr_groups = -(-(high + 1 - low) // group)
    # One bit at the start of each group, times the piece: no loop over groups.
    starts = ((1 << group * nr_groups) - 1) // ((1 << group) - 1)
    return (((1 << used) - 1) * starts << low) & whole


def _kernel_number(text: str, element: str, digits: str, nr_cpus: int) -> int:
    return nr_cpus - 1 if digits == "N" else _number(text, element, digits)


def _check_length(text: str) -> None:
    if len(text) > MAX_LIST_BYTES:
        raise CpuListError(text, f"is longer than {MAX_LIST_BYTES} characters")


def _number(text: str, element: str, digits: str) -> int:
    if not _NUMBER.fullmatch(digits):
        raise CpuListError(text, f"{element!r} is not a number or a range of ASCII digits")
    stripped = digits.lstrip("0") or "0"
    # Checked by length first: int() of a long digit string is quadratic.
    if len(stripped) > len(str(MAX_CPUS)) or int(stripped) >= MAX_CPUS:
        raise CpuListError(text, f"{element!r} has a CPU number above {MAX_CPUS - 1}")
    return int(stripped)


def _span(text: str, low: int, high: int) -> int:
    if low > high:
        raise CpuListError(text, f"range {low}-{high} descends")
    return (1 << high + 1) - (1 << low)
