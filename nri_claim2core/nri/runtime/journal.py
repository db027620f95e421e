"""What happened, in order, for assertions and reports: `EmbeddedRuntime.events`.

Every entry has a `sequence` number. Requests and replies are kept as the bytes that went over
the wire and are decoded on demand, so that recording costs no copy and shows exactly what was
sent, whatever happens to the messages afterwards.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import DecodeError, Message

from nri_claim2core.model.errors import Claim2CoreError
from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.status import Code


class CallFailure(Claim2CoreError):
    """A CRI call did not succeed, or would have logged this; the text is the runtime's."""

    code = "C2C-NRI-22"


class PluginFailure(CallFailure):
    """A plugin answered with an error status; `plugin` is ``NN-name``."""

    code = "C2C-NRI-23"

    def __init__(self, plugin: str, status: int, text: str) -> None:
        name = Code(status).name if status in Code.__members__.values() else str(status)
        words = "".join(word.capitalize() for word in name.split("_"))
        super().__init__(f"rpc error: code = {words} desc = {text}")
        self.plugin = plugin
        self.status = status
        self.text = text


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request to one plugin and what came back."""

    sequence: int
    plugin: str
    """``NN-name``."""
    event: str
    """The event's method name, such as ``StartContainer``, also when StateChange carried it."""
    method: str
    """The method that was called."""
    request_type: type[Message]
    reply_type: type[Message]
    request_bytes: bytes
    reply_bytes: bytes | None
    """None without a successful reply."""
    failure: PluginFailure | None
    """The error status, if that was the answer."""
    lost: str
    """Why the plugin was dropped during this request, "" if it was not."""
    duration_ns: int

    @property
    def request(self) -> Message:
        """The request as it was sent."""
        return self.request_type.FromString(self.request_bytes)

    @property
    def reply(self) -> Message | None:
        """The reply as it came; None without one, or when it cannot be decoded."""
        if self.reply_bytes is None:
            return None
        try:
            return self.reply_type.FromString(self.reply_bytes)
        except DecodeError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginChange:
    """A plugin came, was refused, or went."""

    sequence: int
    plugin: str
    """``NN-name``; ``??-plugin`` before it has said who it is."""
    change: str
    """``registered``, ``refused`` or ``dropped``."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginCall:
    """A call from a plugin: RegisterPlugin or UpdateContainers."""

    sequence: int
    plugin: str
    method: str
    request: Message
    failure: str
    """The error text it was answered with, "" for success."""
    unknown: tuple[str, ...] = ()
    """Container ids in an update that nobody knows; they are skipped."""


Entry = Exchange | PluginChange | PluginCall


class Journal:
    """The ordered list of entries; `is_recording` False keeps nothing, for long benchmarks."""

    def __init__(self, *, is_recording: bool = True) -> None:
        self.entries: list[Entry] = []
        self.is_recording = is_recording
        self._numbers = itertools.count(1)
        self._nr_waiting = 0
        self._changed = threading.Condition()

    def number(self) -> int:
        """Give the next sequence number."""
        return next(self._numbers)

    def add(self, entry: Entry) -> None:
        """Append one entry."""
        if self.is_recording:
            self.entries.append(entry)
        if self._nr_waiting:
            with self._changed:
                self._changed.notify_all()

    def wait(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `holds()`, asked after every entry; give its last answer. Blocking."""
        with self._changed:
            self._nr_waiting += 1
            try:
                return self._changed.wait_for(holds, timeout_s)
            finally:
                self._nr_waiting -= 1

    def note(self, plugin: str, change: str, reason: str = "") -> None:
        """Append a PluginChange."""
        self.add(PluginChange(sequence=self.number(), plugin=plugin, change=change, reason=reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """The outcome of one CRI-like call."""

    error: CallFailure | None = None
    """Why the call failed, None if it did not."""
    logged: tuple[Claim2CoreError, ...] = ()
    """Errors that this runtime only logs."""
    exchanges: tuple[Exchange, ...] = ()
    """What was sent to plugins during the call, in order, with replies and durations."""

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.error is None

    def check(self) -> None:
        """Raise `error` if there is one."""
        if self.error is not None:
            raise self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateResult(CallResult):
    """The outcome of a container's creation."""

    container: api.Container
    """The container after all adjustments (as it came, if the creation failed)."""
    adjustment: api.ContainerAdjustment
    """What the plugins asked for together."""
    updates: tuple[api.ContainerUpdate, ...] = ()
    """Updates of other containers that came with it."""
    owners: api.OwningPlugins
    """Who set what."""
    cdi_devices: tuple[str, ...] = ()
    """CDI devices that plugins asked for and this runtime injects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult(CallResult):
    """The outcome of an update of a container's resources."""

    resources: api.LinuxResources
    """What was applied: the plugins' answer, or what was asked for if none spoke."""
    updates: tuple[api.ContainerUpdate, ...] = ()
    """Updates of other containers that came with it."""


class CallBuilder:
    """Collects the outcome of a call while it runs."""

    def __init__(self) -> None:
        self.error: CallFailure | None = None
        self.exchanges: tuple[Exchange, ...] = ()
        self._logged: list[Claim2CoreError] = []

    def fail(self, error: Claim2CoreError, prefix: str = "") -> None:
        """Let the call fail with `error`, in the words of the runtime's CRI side."""
        if prefix or not isinstance(error, CallFailure):
            self.error = CallFailure(f"{prefix}{error}")
            self.error.__cause__ = error
        else:
            self.error = error

    def log(self, error: Claim2CoreError | None) -> None:
        """Note an error that the runtime only logs; None is none."""
        if error is not None:
            self._logged.append(error)

    @property
    def logged(self) -> tuple[Claim2CoreError, ...]:
        """What was logged so far."""
        return tuple(self._logged)

    def result(self) -> CallResult:
        """Give the outcome of a finished call."""
        return CallResult(error=self.error, logged=self.logged, exchanges=self.exchanges)
