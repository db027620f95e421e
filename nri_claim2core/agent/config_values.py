"""Values that configuration options hold beside plain text: durations, deadlines, addresses.

Each type has one parser, a canonical text (`str`), what it expects in words for error
messages, and its JSON Schema. Parsers take text and give a value or raise ValueError.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, Self

_DURATION: Final = r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(ms|s|m)"
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000}
_MAX_SOCKET_PATH_BYTES: Final = 107
"""sun_path holds 108 bytes with the terminating zero."""
_MAX_PORT: Final = 65535


class ConfigValue(Protocol):
    """What the loader needs of a value type."""

    EXPECTS: ClassVar[str]
    SCHEMA: ClassVar[dict[str, Any]]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the value. Raises: ValueError."""


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A time span of whole milliseconds."""

    milliseconds: int

    EXPECTS: ClassVar[str] = "a duration of 1ms to 10m, such as 500ms, 2s or 1.5s"
    SCHEMA: ClassVar[dict[str, Any]] = {"type": "string", "pattern": f"^{_DURATION}$"}
    MAX_MS: ClassVar[int] = 600_000

    @property
    def seconds(self) -> float:
        """The span in seconds."""
        return self.milliseconds / 1000

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `500ms`, `2s`, `1.5s`, `1m`.

        Raises: ValueError for anything else, and outside 1 ms to 10 min.
        """
        matched = re.fullmatch(_DURATION, text, re.ASCII)
        if not matched:
            raise ValueError(text)
        milliseconds = float(matched[1]) * _UNIT_MS[matched[2]]
        if not milliseconds.is_integer() or not 1 <= milliseconds <= cls.MAX_MS:
            raise ValueError(text)
        return cls(int(milliseconds))

    def __str__(self) -> str:
        whole, rest = divmod(self.milliseconds, 1000)
        return f"{self.milliseconds}ms" if rest else f"{whole}s"


@dataclass(frozen=True, slots=True)
class HandlerDeadline:
    """How long a handler may take: fixed, or following the runtime's request timeout."""

    fixed: Duration | None = None
    "None = a quarter of the request timeout, 500 ms at most."

    EXPECTS: ClassVar[str] = "`auto` or a duration of 5ms to 1m, such as 250ms"
    SCHEMA: ClassVar[dict[str, Any]] = {"type": "string", "pattern": f"^(auto|{_DURATION})$"}
    MIN_MS: ClassVar[int] = 5
    MAX_MS: ClassVar[int] = 60_000

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `auto` or a duration.

        Raises: ValueError; also below 5 ms, where busy nodes would refuse good containers.
        """
        if text == "auto":
            return cls()
        fixed = Duration.parse(text)
        if not cls.MIN_MS <= fixed.milliseconds <= cls.MAX_MS:
            raise ValueError(text)
        return cls(fixed)

    def __str__(self) -> str:
        return "auto" if self.fixed is None else str(self.fixed)


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where the HTTP endpoint listens: a TCP address, a unix socket, or nowhere."""

    host: str = ""
    port: int = 0
    path: str = ""

    EXPECTS: ClassVar[str] = (
        "ADDRESS:PORT such as 127.0.0.1:9899, unix:/path/to/socket, or the empty text"
    )
    SCHEMA: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": r"^(|unix:/.*|[^/\[\]:]+:[0-9]{1,5}|\[[0-9A-Fa-f:.]+\]:[0-9]{1,5})$",
    }

    @property
    def is_enabled(self) -> bool:
        """Tell whether there is anything to listen on."""
        return bool(self.host or self.path)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `127.0.0.1:9899`, `[::1]:9899`, `localhost:9899`, `unix:/path` or nothing.

        Other host names are refused: resolving them could block, and could change.

        Raises: ValueError.
        """
        if not text:
            return cls()
        if text.startswith("unix:"):
            path = text.removeprefix("unix:")
            if not path.startswith("/") or len(path.encode()) > _MAX_SOCKET_PATH_BYTES:
                raise ValueError(text)
            return cls(path=path)
        host, colon, digits = text.rpartition(":")
        if not colon or not re.fullmatch(r"[0-9]{1,5}", digits, re.ASCII):
            raise ValueError(text)
        port = int(digits)
        if host.startswith("[") and host.endswith("]"):
            ipaddress.IPv6Address(host := host[1:-1])
        elif host != "localhost":
            ipaddress.IPv4Address(host)
        if not 1 <= port <= _MAX_PORT:
            raise ValueError(text)
        return cls(host=host, port=port)

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        if not self.host:
            return ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
