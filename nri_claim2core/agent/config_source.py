"""Where the configuration comes from, which layer wins, and what a reload changes.

Layers, each one winning over those before it, option by option:

1. the built-in defaults,
2. the text that the runtime delivers in its Configure request (`/etc/nri/conf.d/...`),
3. the configuration file (`/etc/claim2core/claim2core.yaml`),
4. `conf.d/*.yaml` beside that file, in lexical order,
5. the command line.

So a node operator's own file always wins over the runtime's drop-in, and where there is no
own file the drop-in holds. A reload is all or nothing: with any problem in any layer - also
when the file that was in force is gone - the running configuration stays. Options that need a
new start keep their running value until then.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from nri_claim2core.agent.config import Applies, Config
from nri_claim2core.agent.config_load import (
    Settings,
    merge,
    read_overrides,
    read_runtime_text,
    read_settings,
)
from nri_claim2core.agent.config_problem import ConfigProblems, Place, Problem, Rule
from nri_claim2core.agent.config_schema import OPTIONS, Option, assemble, to_builtins
from nri_claim2core.agent.config_yaml import MAX_BYTES

DEFAULT_PATH: Final = Path("/etc/claim2core/claim2core.yaml")

DROP_IN_DIRECTORY: Final = "conf.d"

_READ_ATTEMPTS: Final = 3
"""A ConfigMap update swaps all files at once; more than one swap while we read is not normal."""

_Signature = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A configuration with the origin of each value."""

    config: Config
    settings: Settings = field(default_factory=dict)
    "What layers set, with place; an option that is not here has its default."
    files: tuple[str, ...] = ()
    "Files read, in order of precedence, weakest first."
    notes: tuple[Problem, ...] = ()
    "What was set or found and has no effect."


@dataclass(frozen=True, slots=True)
class Change:
    """One option that differs between two configurations."""

    option: Option
    old: object
    new: object

    def __str__(self) -> str:
        old, new = to_builtins(self.old), to_builtins(self.new)
        return f"{self.option.path}: {old!r} -> {new!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadOutcome:
    """What a reload did."""

    result: Literal["applied", "unchanged", "refused"]
    loaded: Loaded
    "What is in force now."
    changes: tuple[Change, ...] = ()
    "In force now, or with the next registration (see `Option.applies`)."
    pending: tuple[Change, ...] = ()
    "In the files, and not in force before the next start."
    problems: tuple[Problem, ...] = ()
    "Why it was refused."


def diff(old: Config, new: Config) -> tuple[Change, ...]:
    """Give the options that differ, in file order."""
    return tuple(
        Change(option, option.value_of(old), option.value_of(new))
        for option in OPTIONS.values()
        if option.value_of(old) != option.value_of(new)
    )


class ConfigSource:
    """One node's configuration and its layers; methods are safe from any thread.

    With no `path` the default file is read, which may be absent; a path that is given has to
    exist. `overrides` are `option=value` texts of the command line. Methods that load block
    on local files.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        overrides: Iterable[str] = (),
        root: Path = Path("/"),
    ) -> None:
        self._must_exist: Final = path is not None
        self.path: Final = path or root / DEFAULT_PATH.relative_to("/")
        self._overrides: Final = tuple(overrides)
        self._lock: Final = threading.RLock()
        self._runtime_text = ""
        self._signature: _Signature = ()
        self._current = Loaded(config=Config())

    @property
    def current(self) -> Loaded:
        """What is in force: the defaults until the first `load`. Never waits for a load."""
        return self._current

    def load(self) -> Loaded:
        """Read all layers and put them in force.

        Raises: ConfigProblems with everything that is wrong; nothing changes then.
        """
        with self._lock:
            self._current = self._read()
            return self._current

    def changed(self) -> bool:
        """Tell whether any file differs from when it was last read, refused or not.

        Follows symbolic links, so the swap by which a ConfigMap volume is updated is seen.
        """
        with self._lock:
            return self._sign() != self._signature

    def reload(self) -> ReloadOutcome:
        """Read all layers again; with any problem keep what is in force and say so."""
        with self._lock:
            try:
                fresh = self._read()
            except ConfigProblems as error:
                return ReloadOutcome(
                    result="refused", loaded=self._current, problems=error.problems
                )
            return self._put_in_force(fresh)

    def take_runtime_text(self, text: str) -> ReloadOutcome:
        """Take the text of the runtime's Configure request as a layer and reload.

        A text with problems is refused as a whole and what was delivered before stays.
        """
        with self._lock:
            _, problems, _ = read_runtime_text(text)
            if problems:
                return ReloadOutcome(
                    result="refused", loaded=self._current, problems=tuple(problems)
                )
            self._runtime_text = text
            return self.reload()

    def _put_in_force(self, fresh: Loaded) -> ReloadOutcome:
        old = self._current.config
        differences = diff(old, fresh.config)
        pending = tuple(c for c in differences if c.option.applies is Applies.START)
        changes = tuple(c for c in differences if c.option.applies is not Applies.START)
        if pending:
            fresh = self._with_running_values(fresh, [c.option for c in pending])
        self._current = fresh
        return ReloadOutcome(
            result="applied" if changes else "unchanged",
            loaded=fresh,
            changes=changes,
            pending=pending,
        )

    def _with_running_values(self, fresh: Loaded, options: Iterable[Option]) -> Loaded:
        settings = dict(fresh.settings)
        for option in options:
            running = self._current.settings.get(option.path)
            if running is None:
                settings.pop(option.path, None)
            else:
                settings[option.path] = running
        return Loaded(
            config=_config(settings), settings=settings, files=fresh.files, notes=fresh.notes
        )

    def _read(self) -> Loaded:
        for _ in range(_READ_ATTEMPTS):
            self._signature = self._sign()
            try:
                loaded, problems = self._read_once(), None
            except ConfigProblems as error:
                problems = error
            if self._sign() == self._signature:
                break
        if problems is not None:
            raise problems
        return loaded

    def _read_once(self) -> Loaded:
        problems: list[Problem] = []
        runtime, found, notes = read_runtime_text(self._runtime_text)
        problems += found
        layers: list[Settings] = [runtime]
        files: list[str] = []
        for path in self._files(problems, notes):
            settings, found = read_file(path)
            files.append(str(path))
            layers.append(settings)
            problems += found
        settings, found = read_overrides(self._overrides)
        layers.append(settings)
        problems += found
        if problems:
            raise ConfigProblems(problems)
        merged = merge(layers)
        return Loaded(
            config=_config(merged), settings=merged, files=tuple(files), notes=tuple(notes)
        )

    def _files(self, problems: list[Problem], notes: list[Problem]) -> list[Path]:
        # A file that was in force and is gone is read too, and so refused: a reload that finds
        # an editor between two renames must not fall back to the defaults.
        was_read = str(self.path) in self._current.files
        is_expected = self._must_exist or was_read or _is_there(self.path)
        files = [self.path] if is_expected else []
        try:
            names = self._drop_in_names()
        except OSError as error:
            problems.append(_unreadable(self._drop_ins, error))
            return files
        notes += [
            Problem(
                Rule.NO_EFFECT,
                Place(str(self._drop_ins / name)),
                "not read: only *.yaml is",
                "rename it",
            )
            for name in names
            if name.endswith((".yml", ".json"))
        ]
        return files + [self._drop_ins / name for name in names if name.endswith(".yaml")]

    @property
    def _drop_ins(self) -> Path:
        return self.path.parent / DROP_IN_DIRECTORY

    def _drop_in_names(self) -> list[str]:
        try:
            names = [path.name for path in self._drop_ins.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        # Names with a leading dot are a ConfigMap volume's own, and editors' copies.
        return sorted(name for name in names if not name.startswith("."))

    def _sign(self) -> _Signature:
        try:
            names = self._drop_in_names()
        except OSError:
            names = []
        paths = [self.path, *(self._drop_ins / name for name in names)]
        return tuple((str(path), _stat_signature(path)) for path in paths)


def read_file(path: Path) -> tuple[Settings, list[Problem]]:
    """Give what a file sets, and everything that is wrong with it.

    Never waits: what is not a regular file (a FIFO) is refused.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return {}, [Problem(Rule.UNREADABLE, Place(str(path)), "is not a regular file")]
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        return {}, [_unreadable(path, error)]
    return read_settings(data, str(path))


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # and reading it says why it cannot be read
    return True


def _config(settings: Settings) -> Config:
    return assemble({path: setting.value for path, setting in settings.items()})


def _unreadable(path: Path, error: OSError) -> Problem:
    return Problem(Rule.UNREADABLE, Place(str(path)), f"cannot be read: {error.strerror or error}")


def _stat_signature(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError as error:
        return (error.errno or 0,)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
