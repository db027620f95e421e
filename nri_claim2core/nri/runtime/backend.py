"""What runs the containers: nothing by default, real processes in a lab.

The lifecycle calls a backend where a runtime calls its OCI runtime. `create` makes the init
process that waits, `start` lets it go. A failure is raised as BackendError and has the effect
that a failing OCI runtime has.
"""

from __future__ import annotations

import itertools
from typing import Protocol

from nri_claim2core.model.errors import Claim2CoreError
from nri_claim2core.nri import nri_pb2 as api

FIRST_SYNTHETIC_PID = (1 << 22) + 1
"""Above the kernel's PID_MAX_LIMIT (2^22): no process can ever have it."""


class BackendError(Claim2CoreError):
    """The OCI runtime refused; the text is what it said."""

    code = "C2C-NRI-25"


class ContainerBackend(Protocol):
    """Runs containers. Calls come one at a time; they may block."""

    def create(self, container: api.Container) -> int:
        """Create the container's init process, blocked before the workload; give its pid."""

    def start(self, container: api.Container) -> None:
        """Let the workload run."""

    def update(self, container: api.Container, resources: api.LinuxResources) -> None:
        """Apply the resources of a container whose process exists."""

    def stop(self, container: api.Container) -> int:
        """End the process and wait for it; give the exit code."""


class NoBackend:
    """Runs nothing; processes have pids that cannot exist."""

    def __init__(self) -> None:
        self._pids = itertools.count(FIRST_SYNTHETIC_PID)

    def create(self, container: api.Container) -> int:
        """Give a pid that no process has."""
        del container
        return next(self._pids)

    def start(self, container: api.Container) -> None:
        """Do nothing."""

    def update(self, container: api.Container, resources: api.LinuxResources) -> None:
        """Do nothing."""

    def stop(self, container: api.Container) -> int:
        """Give the exit code of a workload that ended well."""
        del container
        return 0
