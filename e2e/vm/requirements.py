"""Print what the guest's Python needs: the project's requirements and those of its tests."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

# Of the development tools, what runs tests; linters stay at home.
_TEST_TOOLS = frozenset({"hypothesis", "jsonschema", "pytest"})
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def requirements(pyproject: str) -> list[str]:
    """Requirement lines out of the text of a pyproject.toml, sorted."""
    table = tomllib.loads(pyproject)
    project = table["project"]
    tools = [
        line
        for line in table["dependency-groups"]["dev"]
        if (name := _NAME.match(line)) and name[0] in _TEST_TOOLS
    ]
    return sorted({*project["dependencies"], *project["optional-dependencies"]["demo"], *tools})


if __name__ == "__main__":
    print("\n".join(requirements((Path(__file__).parents[2] / "pyproject.toml").read_text())))
