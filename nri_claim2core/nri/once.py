"""Log a condition once, however often it occurs: what comes after is for metrics."""

from __future__ import annotations

import logging

_MAX_CONDITIONS = 64
"A peer that varies its mistakes cannot fill the log either."


class OnceLogger:
    """Logs each condition once; `details` stand on every line."""

    def __init__(self, log: logging.Logger, **details: object) -> None:
        self._log = log
        self._details = details
        self._seen: set[tuple[str, str]] = set()

    def warn(self, text: str, about: str = "", **details: object) -> None:
        """Log a warning; a condition is `text` and `about`."""
        if self._is_new(text, about):
            self._log.warning(text, extra={**self._details, **details})

    def fail(self, text: str, error: BaseException, about: str = "", **details: object) -> None:
        """Log an error with its traceback; a condition is `text`, `about` and its type."""
        if self._is_new(text, f"{about} {type(error).__name__}"):
            self._log.error(text, exc_info=error, extra={**self._details, **details})

    def _is_new(self, text: str, about: str) -> bool:
        key = (text, about)
        if key in self._seen or len(self._seen) >= _MAX_CONDITIONS:
            return False
        self._seen.add(key)
        return True
