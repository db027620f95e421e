"""The errors of both NRI endpoints, each with a code of its own.

They belong to the families of the product (who has to act): the peer broke the protocol or
went away (`PeerError`), the caller drove the interface wrongly (`UsageError`), the operator
has to change something (`ConfigError`). `RpcError` is the one that travels: raised by a
handler it becomes a status on the wire, received as a status it is raised to the caller.
"""

from __future__ import annotations

from nri_claim2core.model.errors import Claim2CoreError, ConfigError, PeerError, UsageError


class RpcError(Claim2CoreError):
    """A call was refused; `status` is the ttrpc status code, `message` goes over the wire.

    A message that is no text, such as the exception behind it, is taken as its text.
    """

    code = "C2C-NRI-01"

    def __init__(self, status: int, message: str, *, hint: str = "") -> None:
        super().__init__(str(message), hint=hint)
        self.status = int(status)

    def __str__(self) -> str:
        return f"status {self.status}: {super().__str__()}"


class ProtocolError(PeerError):
    """The peer sent bytes that cannot be read on from; the connection ends."""

    code = "C2C-NRI-02"


class ConnectionLostError(PeerError):
    """The connection ended: the peer closed it, or the socket failed."""

    code = "C2C-NRI-03"


class PeerStalledError(PeerError):
    """The peer stopped reading, or did not answer a call in time."""

    code = "C2C-NRI-04"


class RegistrationError(PeerError):
    """The runtime did not take the plugin in; the message says which side gave up."""

    code = "C2C-NRI-05"


class MessageTooLargeError(UsageError):
    """A message above the ttrpc limit was about to be sent; nothing was."""

    code = "C2C-NRI-06"


class NotAllowedError(UsageError):
    """A call that would stall or dead-lock this runtime, or that is used too early."""

    code = "C2C-NRI-07"


class SocketError(ConfigError):
    """The runtime's socket cannot be reached: missing, not permitted, nobody listening."""

    code = "C2C-NRI-08"

    def __init__(self, message: str, *, path: str, errno: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.errno = errno


class IdentityError(ConfigError):
    """The plugin's name or index is missing or is none that runtimes accept."""

    code = "C2C-NRI-09"
