"""The one writer of the maps: runs the mutation program on batches of requests.

Who takes the token is the writer from then on; everybody who had it before is refused by the
kernel side. Nothing here decides anything: the program resolves threads, compares identities,
stamps generations (INV-MONOTONIC, INV-ROLLBACK, INV-TIDREUSE).
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Sequence
from typing import Final

from nri_claim2core.bpfmap.abi import (
    ABI,
    MAX_REQUESTS,
    MUTATION,
    REQUEST_SIZE,
    ControlFlag,
    Op,
    Result,
)
from nri_claim2core.bpfmap.errors import (
    BpfError,
    BusyError,
    CellError,
    CgroupGoneError,
    MapFullError,
    OtherAbiError,
    OtherCgroupError,
    OtherTaskError,
    RowChangedError,
    RowMissingError,
    StaleWriterError,
    TaskGoneError,
)
from nri_claim2core.bpfmap.loader import Loaded
from nri_claim2core.bpfmap.requests import Outcome, Request, unpack_outcome
from nri_claim2core.bpfmap.syscall import ProgramRun
from nri_claim2core.model.errors import HostError, StaleError, UsageError

BUSY_ATTEMPTS: Final = 100
BUSY_PAUSE_S: Final = 0.0005
"""Together 50 ms: the longest mutation (512 requests) takes less than 1 ms."""

_MESSAGES: Final[dict[Result, tuple[type[HostError | StaleError], str]]] = {
    Result.OTHER_ABI: (OtherAbiError, "the maps are of another ABI"),
    Result.BUSY: (BusyError, "another mutation is running"),
    Result.STALE_WRITER: (StaleWriterError, "another writer has taken the token"),
    Result.FLOOR_LOWER: (StaleError, "the floor is higher already"),
    Result.FULL: (MapFullError, "the map is full"),
    Result.NO_MEMORY: (BpfError, "the kernel has no memory for the row"),
    Result.NOT_FOUND: (RowMissingError, "there is no such row"),
    Result.TASK_GONE: (TaskGoneError, "the thread has ended"),
    Result.OTHER_TASK: (OtherTaskError, "the TID belongs to another thread"),
    Result.OTHER_CGROUP: (OtherCgroupError, "the thread is in another cgroup"),
    Result.NO_CGROUP: (CgroupGoneError, "the cgroup does not exist"),
    Result.CELL_TAKEN: (CellError, "the cell is in use with another envelope"),
    Result.CELL_STALE: (CellError, "the cell is not live, or was reused"),
    Result.CELL_BUSY: (CellError, "the cell is not drained"),
    Result.OTHER_GENERATION: (RowChangedError, "the row was written again"),
}


def error_of(result: Result, error: int = 0, what: str = "mutation") -> HostError | StaleError:
    """Give the named error of a result that is not OK."""
    if result is Result.KERNEL:
        return BpfError(f"{what}: {os.strerror(error)}", errno=error)
    kind, words = _MESSAGES.get(result, (BpfError, "the request was not understood"))
    return kind(f"{what}: {words}")


class Writer:
    """Writes rows for as long as it has the token; safe for threads."""

    def __init__(self, loaded: Loaded) -> None:
        self._run: Final = ProgramRun(loaded.programs["c2c_mutate"], MUTATION.size)
        self._requests: Final = mmap.mmap(loaded.requests_fd, MAX_REQUESTS * REQUEST_SIZE)
        self._lock: Final = threading.Lock()
        self._token = 0

    def close(self) -> None:
        """Give the request map back; the token stays ours until somebody takes it."""
        self._requests.close()

    @property
    def token(self) -> int:
        """What the kernel knows this writer by; 0 before `take`."""
        return self._token

    def take(self) -> int:
        """Become the one writer; give the token. Blocking: microseconds.

        Raises: OtherAbiError, BusyError, CapabilityError, BpfError.
        """
        with self._lock:
            self._token = self._mutate(Op.TAKE_TOKEN)
            return self._token

    def raise_floor(self, generation: int) -> None:
        """Make every row with a lower generation void.

        Raises: StaleError when the floor is higher already, BpfError for one above the
        counter; else as `apply`.
        """
        with self._lock:
            self._mutate(Op.RAISE_FLOOR, value=generation)

    def set_flags(self, flags: ControlFlag) -> None:
        """Replace the control flags. Raises: as `apply`."""
        with self._lock:
            self._mutate(Op.SET_FLAGS, value=int(flags))

    def apply(self, requests: Sequence[Request]) -> list[Outcome]:
        """Do the requests in order, each on its own; give what became of each.

        Requests beyond the size of a batch follow in further runs. A failed one does not stop
        the others. Raises: StaleWriterError, OtherAbiError, BusyError, CapabilityError,
        BpfError - then nothing of this run was done. Blocking: about 1 us per request.
        """
        outcomes: list[Outcome] = []
        with self._lock:
            for start in range(0, len(requests), MAX_REQUESTS):
                part = requests[start : start + MAX_REQUESTS]
                data = b"".join([request.pack() for request in part])
                self._requests[: len(data)] = data
                self._mutate(Op.ROWS, count=len(part))
                answers = self._requests[: len(data)]
                outcomes += [
                    unpack_outcome(answers, at) for at in range(0, len(answers), REQUEST_SIZE)
                ]
        return outcomes

    def put(self, *requests: Request) -> list[Outcome]:
        """Do the requests as `apply`, and raise the first one's named error."""
        outcomes = self.apply(requests)
        for request, outcome in zip(requests, outcomes, strict=True):
            if outcome.result is not Result.OK:
                raise error_of(outcome.result, outcome.error, request.op.name)
        return outcomes

    def _mutate(self, op: Op, *, value: int = 0, count: int = 0) -> int:
        if not self._token and op is not Op.TAKE_TOKEN:
            raise UsageError("this writer has not taken the token")
        argument = self._run.argument
        for _ in range(BUSY_ATTEMPTS):
            argument[:] = MUTATION.pack(self._token, value, 0, ABI, op, count, 0, 0, 0)
            self._run.run()
            token, *_, number, _ = MUTATION.unpack(argument)
            result = Result(number)
            if result is not Result.BUSY:
                break
            time.sleep(BUSY_PAUSE_S)
        if result is not Result.OK:
            raise error_of(result)
        return token
