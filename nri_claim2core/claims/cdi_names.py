"""Qualified CDI device names, `vendor/class=name`, by the grammar of the CDI parser.

    vendor, class = LETTER [ *(ALNUM | "_" | "-" | ".") ALNUM ]
    name          = ALNUM  [ *(ALNUM | "_" | "-" | "." | ":") ALNUM ]

ASCII only, nothing trimmed or folded. The text splits at the *first* `=` and what is before it
at the *first* `/`, so that a second `/` spoils the class and a second `=` the name. A text that
begins with `/` is a device path, never a name. Source: CDI SPEC v1.1.0 and its parser package.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from nri_claim2core.claims.text import shown
from nri_claim2core.model.errors import Claim2CoreError

_LABEL: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?", re.ASCII)


class CdiNameError(Claim2CoreError):
    """A text that is not a qualified CDI name; `rule` says why, `qualified` how near it is."""

    code = "C2C-CDI-01"

    def __init__(self, text: str, rule: str, *, qualified: bool) -> None:
        super().__init__(f"CDI name {shown(text)}: {rule}")
        self.rule = rule
        self.qualified = qualified
        "False: not of the form vendor/class=name at all. True: of the form, a part is invalid."


class CdiName(NamedTuple):
    """A qualified name in its three parts."""

    vendor: str
    cls: str
    name: str

    def __str__(self) -> str:
        return f"{self.vendor}/{self.cls}={self.name}"


def parse_cdi_name(text: str) -> CdiName:
    """Read a qualified CDI name.

    Raises: CdiNameError naming the rule.
    """
    if text.startswith("/"):
        raise CdiNameError(text, "a text that begins with / is a path", qualified=False)
    kind, equals, name = text.partition("=")
    vendor, slash, cls = kind.partition("/")
    if not (equals and slash and vendor and cls and name):
        raise CdiNameError(text, "is not vendor/class=name with three parts", qualified=False)
    for part, value in (("vendor", vendor), ("class", cls)):
        if not _LABEL.fullmatch(value):
            raise CdiNameError(
                text,
                f"{part} {shown(value)} is not a letter, then letters, digits, _ - . "
                "and a letter or digit at the end",
                qualified=True,
            )
    if not _NAME.fullmatch(name):
        raise CdiNameError(
            text,
            f"device {shown(name)} is not letters, digits, _ - . : "
            "with a letter or digit at both ends",
            qualified=True,
        )
    return CdiName(vendor, cls, name)
