"""What can go wrong with a test bed: something is missing here, or the bed itself failed."""

from __future__ import annotations

from nri_claim2core.model.errors import Claim2CoreError


class LabError(Claim2CoreError):
    """The bed could not be built, started or cleaned up; the message holds the log's tail."""

    code = "C2C-LAB-01"


class MissingError(LabError):
    """This machine lacks what a bed needs; `hint` says how to get it."""

    code = "C2C-LAB-02"


class CriError(LabError):
    """A CRI call that the runtime refused.

    `method` is the call, `status` the gRPC status name (such as ``UNKNOWN``), `details` the
    runtime's own words.
    """

    code = "C2C-LAB-03"

    def __init__(self, method: str, status: str, details: str) -> None:
        super().__init__(f"{method}: {status}: {details}")
        self.method = method
        self.status = status
        self.details = details
