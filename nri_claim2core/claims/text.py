"""Foreign text made fit for a message: short, printable, ASCII.

Whatever a pod author writes ends up in findings, logs and Events. It is cut before it is
escaped, so that a megabyte of environment costs a line, and escaped to ASCII, so that NULs,
terminal codes and lone surrogates cannot break an encoder or a terminal further on.
"""

from __future__ import annotations

from typing import Final

SHOWN_CHARACTERS: Final = 60
"""Enough for a qualified CDI name with a claim UID, or for `DRA_CPUSET_` with one."""


def shown(text: str) -> str:
    """Give `text` quoted, escaped to printable ASCII, and cut with `...` when long."""
    if len(text) <= SHOWN_CHARACTERS:
        return ascii(text)
    return ascii(text[:SHOWN_CHARACTERS]) + "..."


def shown_rule(rule: str) -> str:
    """Give a rule that may quote foreign text, cut to twice what `shown` keeps."""
    limit = 2 * SHOWN_CHARACTERS
    return rule if len(rule) <= limit else rule[:limit] + "..."
