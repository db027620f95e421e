"""The commands: name, module, one line of help (at most 60 characters, no full stop).

Only what exists is listed. Roles first, then what is tried out with it, then what reads.
"""

from __future__ import annotations

from typing import Final

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "plugin": ("nri_claim2core.cli.plugin", "run the NRI plugin"),
    "scheduler": ("nri_claim2core.cli.scheduler", "keep the sched_ext scheduler attached"),
    "demo": ("nri_claim2core.cli.demo", "play a node's day on a private containerd"),
    "simulate": ("nri_claim2core.cli.simulate", "play a scripted list of events"),
    "explain": ("nri_claim2core.cli.explain", "say which claims a container holds, and why"),
    "inspect": ("nri_claim2core.cli.inspect", "show the maps' rows and what governs a thread"),
    "sweep": ("nri_claim2core.cli.sweep", "acts: delete void rows that no plugin looks after"),
    "config": ("nri_claim2core.cli.config", "check configuration files, show what is in force"),
    "version": ("nri_claim2core.cli.version", "print versions"),
}
