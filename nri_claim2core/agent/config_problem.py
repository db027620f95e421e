"""What is wrong with a configuration, all of it at once, each with its place and a way out."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from nri_claim2core.model.errors import ConfigError


class Rule(enum.Enum):
    """The rule that was broken; the value is the stable code."""

    UNKNOWN_KEY = "C2C-CONFIG-01"
    WRONG_VALUE = "C2C-CONFIG-02"
    DUPLICATE_KEY = "C2C-CONFIG-03"
    UNREADABLE = "C2C-CONFIG-04"
    SYNTAX = "C2C-CONFIG-05"
    REFUSED_YAML = "C2C-CONFIG-06"
    TOO_LARGE = "C2C-CONFIG-07"
    NO_EFFECT = "C2C-CONFIG-08"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value or a problem stands."""

    file: str
    "Path, or a name such as `command line` for what is not a file."
    line: int = 0
    "1-based; 0 = the whole."

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to correct."""

    rule: Rule
    place: Place
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" + (f" - {self.hint}" if self.hint else "")


class ConfigProblems(ConfigError):
    """A configuration that is not used, with everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__(f"configuration has {count}:\n{lines}", code=self.problems[0].rule.value)
