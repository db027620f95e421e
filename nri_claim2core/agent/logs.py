"""Log records as events: a constant message, key/value extras, one line each.

JSON lines where nobody watches, aligned text on a terminal. Every line of one request of the
runtime carries its `op` (8 hex digits), bound by whoever dispatches the request. Whatever a
caller passes under a name that means environment variables is cut down to their names: values
may be secrets. Text from outside (pod names, annotations) is escaped, so one record is always
one line and cannot imitate another.

Records go to standard error, which is /dev/null for a plugin that the runtime started:
`deploy/README.md` says how to keep them there.
"""

from __future__ import annotations

import contextvars
import json
import logging
import math
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TextIO

_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "op"}
_ENVIRONMENT_NAMES: Final = frozenset(("env", "envs", "environ", "environment"))
_MAX_VALUE_CHARACTERS: Final = 2048
"""Of one extra; what is longer is cut, a log line is not a dump."""

_MESSAGE_WIDTH: Final = 28
"""Aligns the extras of most messages without pushing them off an 80-column screen."""

_op: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("op", default="")


@contextmanager
def op(identity: str) -> Iterator[None]:
    """Put `op` on every record that this thread (or task) writes inside the block."""
    token = _op.set(identity)
    try:
        yield
    finally:
        _op.reset(token)


def configure_logging(level: str, style: str, stream: TextIO | None = None) -> None:
    """Send all records to one stream, by default standard error; may be called again.

    `level` is debug, info, warning or error; `style` is auto, json or text, where auto is
    text on a terminal and JSON elsewhere.
    """
    stream = stream or sys.stderr
    is_text = style == "text" or (style == "auto" and stream.isatty())
    handler = _Handler(stream)
    handler.setFormatter(TextFormatter() if is_text else JsonFormatter())
    handler.addFilter(_add_op)
    root = logging.getLogger()
    for old in [h for h in root.handlers if isinstance(h, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # A stream that is gone must not take the plugin with it, nor write tracebacks to it.
    logging.raiseExceptions = False


def extras_of(record: logging.LogRecord) -> dict[str, Any]:
    """Give a record's key/value extras, without the values of environment variables."""
    return {
        key: _names_only(value) if key.lower() in _ENVIRONMENT_NAMES else _plain(value)
        for key, value in vars(record).items()
        if key not in _STANDARD_FIELDS and not key.startswith("_")
    }


class JsonFormatter(logging.Formatter):
    """One JSON object per record: ts, level, logger, msg, op, the extras, error."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the line."""
        line: dict[str, Any] = {
            "ts": _timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": _short(record.name),
            "msg": record.getMessage(),
        }
        if identity := getattr(record, "op", ""):
            line["op"] = identity
        for key, value in extras_of(record).items():
            line[key if key not in line else f"{key}_"] = value
        if record.exc_info:
            line["error"] = _traceback(record)
        return json.dumps(line, ensure_ascii=True, separators=(",", ":"), default=str)


class TextFormatter(logging.Formatter):
    """`12:00:00.000 INFO    message   key=value key="two words"`, tracebacks below, indented."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the line."""
        identity = getattr(record, "op", "")
        pairs = {**({"op": identity} if identity else {}), **extras_of(record)}
        tail = " ".join(f"{key}={_word(value)}" for key, value in pairs.items())
        clock = _timestamp(record.created)[11:23]
        message = _escaped(record.getMessage())
        line = f"{clock} {record.levelname:<7} {message:<{_MESSAGE_WIDTH}} {tail}".rstrip()
        if record.exc_info:
            below = "\n".join(f"    {_escaped(part)}" for part in _traceback(record).splitlines())
            line = f"{line}\n{below}"
        return line


class _Handler(logging.StreamHandler[TextIO]):
    # Known by its type, so that a second call replaces it and leaves others' handlers alone.
    pass


def _add_op(record: logging.LogRecord) -> bool:
    # A caller that knows its request may also say so itself.
    record.op = getattr(record, "op", "") or _op.get()
    return True


def _timestamp(created: float) -> str:
    clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created))
    return f"{clock}.{int(created * 1000) % 1000:03d}Z"


def _short(logger: str) -> str:
    return logger.removeprefix("nri_claim2core.")


def _traceback(record: logging.LogRecord) -> str:
    return "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""


def _names_only(value: object) -> list[str]:
    if isinstance(value, str):
        value = [value]
    if isinstance(value, Iterable):  # of a mapping these are the names
        return [str(entry).partition("=")[0] for entry in value]
    return []


def _plain(value: object) -> Any:  # noqa: ANN401 - what JSON takes
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)  # JSON has no infinity
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    text = str(value)
    if len(text) > _MAX_VALUE_CHARACTERS:
        return text[:_MAX_VALUE_CHARACTERS] + "..."
    return text


def _word(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=True, default=str)
    if isinstance(value, str) and (not text or not text.isprintable() or set(text) & set(' "=')):
        return json.dumps(text, ensure_ascii=True)
    return text


def _escaped(text: str) -> str:
    return text if text.isprintable() else json.dumps(text, ensure_ascii=True)[1:-1]
