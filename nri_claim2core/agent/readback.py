"""Read back from the kernel what cpuset a container really has, and judge it.

Writing proves nothing: v2 accepts a set disjoint from the parent's and runs the tasks on the
parent's CPUs. So `effective` is read, after start and after each update, and compared with
the predicate of the container's owner (INV-ENVELOPE). Outcomes are named in `metrics_table`.
"""

from __future__ import annotations

from collections.abc import Callable

from nri_claim2core.agent.book import Entry, Observed
from nri_claim2core.agent.decide import Decider, Others
from nri_claim2core.claims.codes_table import finding
from nri_claim2core.host.cgroups import NOT_FOUND, CgroupReader
from nri_claim2core.model.claim import Finding
from nri_claim2core.model.errors import HostError


class ReadBack:
    """Reads and judges effective cpusets; `decider` gives the rules of the moment."""

    def __init__(self, cgroups: CgroupReader, decider: Callable[[], Decider]) -> None:
        self._cgroups = cgroups
        self._decider = decider

    def check(
        self, entry: Entry, event: str, others: Others
    ) -> tuple[Observed | None, tuple[Finding, ...], str]:
        """Give what is in force, the findings, and which of `READBACKS` that is.

        Raises: nothing. Blocking: host read (about four small files).
        """
        container = entry.container
        try:
            cgroup = self._cgroups.locate(container.cgroups_path, container.pid)
            effective = self._cgroups.read_effective(cgroup.leaf)
        except HostError as error:
            # Before the start its init waits in the cgroup: then we look in the wrong place.
            if error.code == NOT_FOUND and event != "StartContainer":
                return None, (), "gone"
            return None, (finding("C2C-ENV-20", str(error)),), "unreadable"
        observed = Observed(cpus=effective.cpus, mems=effective.mems, when=event)
        findings = self._decider().judge(entry, effective.cpus, effective.mems, others)
        is_severe = any(each.severity == "error" for each in findings)
        return observed, findings, "outside" if is_severe else "narrower" if findings else "inside"
