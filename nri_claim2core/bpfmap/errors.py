"""What can go wrong with the maps, by who has to act; each with a stable code.

A row that cannot be written because its task, cgroup or cell has gone is a StaleError: normal
in operation. The rest is the node's state: HostError, with a hint that says what to do.
"""

from __future__ import annotations

from nri_claim2core.model.errors import HostError, StaleError


class BpfError(HostError):
    """bpf(2) refused for a reason that has no name here; `errno` says which."""

    code = "C2C-BPF-00"


class MapsMissingError(HostError):
    """No maps are pinned in the directory: no plugin has run here since the boot."""

    code = "C2C-BPF-01"


class OtherAbiError(HostError):
    """The pinned maps are of another ABI: nothing is written to them."""

    code = "C2C-BPF-02"


class PinGoneError(HostError):
    """A map is no longer pinned: somebody removed it behind the owner's back."""

    code = "C2C-BPF-03"


class PinReplacedError(HostError):
    """Another map is pinned under a name of ours: somebody else loaded maps."""

    code = "C2C-BPF-04"


class BpffsError(HostError):
    """The pin directory is not on a BPF file system."""

    code = "C2C-BPF-05"


class CapabilityError(HostError):
    """The process may not use bpf(2), or not in this way."""

    code = "C2C-BPF-06"


class PidNamespaceError(HostError):
    """TIDs seen by this process are not those of the initial pid namespace."""

    code = "C2C-BPF-07"


class MapFullError(HostError):
    """A map has no room for another row."""

    code = "C2C-BPF-08"


class BusyError(HostError):
    """Another mutation ran all the time that this one was ready to wait."""

    code = "C2C-BPF-09"


class LoadError(HostError):
    """The object could not be loaded; the message has libbpf's or the verifier's words."""

    code = "C2C-BPF-10"


class SchedulerTakenError(HostError):
    """Another sched_ext scheduler is attached; only one can be."""

    code = "C2C-BPF-11"


class StaleWriterError(StaleError):
    """Another writer has taken over: this one must stop writing."""

    code = "C2C-BPF-20"


class TaskGoneError(StaleError):
    """The thread has ended."""

    code = "C2C-BPF-21"


class OtherTaskError(StaleError):
    """The TID belongs to another thread than the one meant, or the row to another one."""

    code = "C2C-BPF-22"


class OtherCgroupError(StaleError):
    """The thread is in another cgroup than the one meant."""

    code = "C2C-BPF-23"


class CgroupGoneError(StaleError):
    """The cgroup does not exist any more."""

    code = "C2C-BPF-24"


class CellError(StaleError):
    """The cell is taken, draining, or of another generation than the one meant."""

    code = "C2C-BPF-25"


class RowChangedError(StaleError):
    """The row to delete has been written again since."""

    code = "C2C-BPF-26"


class RowMissingError(StaleError):
    """There is no such row."""

    code = "C2C-BPF-27"
