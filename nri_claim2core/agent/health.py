"""Is the plugin alive, and is it ready: named parts, each with its state in words.

Alive means that the threads that serve the runtime still turn; a dead part is a reason to
restart the process. Ready means registered, synchronized and with a configuration in force.
Neither ever depends on anything outside this node: restarting during an outage elsewhere
would make that outage worse.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


class Probe(enum.Enum):
    """The two questions that are asked."""

    LIVE = "livez"
    READY = "readyz"


@dataclass(frozen=True, slots=True)
class PartState:
    """The state of one part."""

    name: str
    is_good: bool
    detail: str
    "In words, for `?verbose`."


class Health:
    """The states of all parts; every method is safe from any thread and never blocks.

    Live parts are good until something says otherwise, ready parts are not until set.
    """

    def __init__(self, *, live: Iterable[str], ready: Iterable[str]) -> None:
        self._lock: Final = threading.Lock()
        self._parts: Final = {
            Probe.LIVE: {name: PartState(name, is_good=True, detail="running") for name in live},
            Probe.READY: {name: PartState(name, is_good=False, detail="not yet") for name in ready},
        }

    def set(self, name: str, is_good: bool, detail: str) -> None:
        """Set the state of a part.

        Raises: KeyError for a part that was not declared.
        """
        with self._lock:
            for parts in self._parts.values():
                if name in parts:
                    parts[name] = PartState(name, is_good, detail)
                    return
        raise KeyError(name)

    def report(self, probe: Probe) -> tuple[bool, list[PartState]]:
        """Tell whether all parts of a probe are good, and give them. A dead plugin is not ready."""
        with self._lock:
            parts = list(self._parts[Probe.LIVE].values())
            if probe is Probe.READY:
                parts += self._parts[Probe.READY].values()
        return all(part.is_good for part in parts), parts
