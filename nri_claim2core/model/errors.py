"""One family of errors, split by who has to act.

Every error carries a stable short code (it appears in logs, findings and docs), the human
message, and a hint that says what to do. Foreign exceptions are mapped once, at the adapter
that met them, with `from`.
"""

from __future__ import annotations


class Claim2CoreError(Exception):
    """Base of all errors that this product raises on purpose."""

    code = "C2C-GENERAL-00"

    def __init__(self, message: str, *, hint: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code:
            self.code = code

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class PeerError(Claim2CoreError):
    """The runtime or plugin on the other side broke the protocol: close and reconnect."""

    code = "C2C-PEER-00"


class UsageError(Claim2CoreError):
    """The caller drove an interface in a way it does not allow: a bug on this side."""

    code = "C2C-USAGE-00"


class ConfigError(Claim2CoreError):
    """A configuration the operator has to correct; the message names file and line."""

    code = "C2C-CONFIG-00"


class HostError(Claim2CoreError):
    """The kernel or the file system refused; `path` says where, `errno` why (0 if unknown)."""

    code = "C2C-HOST-00"

    def __init__(
        self, message: str, *, path: str = "", errno: int = 0, hint: str = "", code: str = ""
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.path = path
        self.errno = errno


class StaleError(Claim2CoreError):
    """What was referred to is gone or was replaced: normal in operation, never a traceback."""

    code = "C2C-STALE-00"


_SHOWN_CHARACTERS = 60
_SHOWN_RULE_CHARACTERS = 160


class CpuListError(Claim2CoreError):
    """A CPU list that cannot be read; `text` is the list, `rule` the rule it breaks."""

    code = "C2C-CPUSET-01"

    def __init__(self, text: str, rule: str) -> None:
        # The rule may quote an element, which can be as long as the list.
        self.rule = _shortened(rule, _SHOWN_RULE_CHARACTERS)
        self.text = text
        super().__init__(f"CPU list {_shortened(text, _SHOWN_CHARACTERS)!r}: {self.rule}")


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + "..."
