"""The plugin role as a process: configuration, registration, reload, health, orderly end.

Start-up does only what registration needs; the HTTP endpoint, the read-back of containers
that were there before us and the freezing of the garbage collector come after the runtime has
been answered. Threads: the runner's own, one for housekeeping (reload, read-back), one for the
HTTP endpoint. On SIGTERM the requests already received are answered, then the process ends;
running containers keep their cpusets.
"""

from __future__ import annotations

import gc
import logging
import os
import queue
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nri_claim2core import __version__
from nri_claim2core.agent.book import Book
from nri_claim2core.agent.config import Config, ViolationEffect
from nri_claim2core.agent.config_source import ConfigSource, Loaded, ReloadOutcome
from nri_claim2core.agent.decide import Decider, Rules
from nri_claim2core.agent.documents import Document, state_document
from nri_claim2core.agent.instance import InstanceLock
from nri_claim2core.agent.logs import configure_logging
from nri_claim2core.agent.metrics import Metrics
from nri_claim2core.agent.plugin import Claim2CorePlugin
from nri_claim2core.agent.readback import ReadBack
from nri_claim2core.agent.runtimes import is_known
from nri_claim2core.agent.seeding import Seeding
from nri_claim2core.agent.watch import ConnectionWatch
from nri_claim2core.claims.effects import Effects
from nri_claim2core.host.cgroups import CgroupReader
from nri_claim2core.host.evidence import EvidenceReader
from nri_claim2core.nri import api
from nri_claim2core.nri.identity import SOCKET_VARIABLE
from nri_claim2core.nri.runner import Runner, default_handler_deadline
from nri_claim2core.nri.session import MAX_STUCK_HANDLERS

if TYPE_CHECKING:
    from nri_claim2core.agent.endpoint import Endpoint

log = logging.getLogger(__name__)

RELOAD_POLL_S: Final = 5.0
"""How soon a changed configuration file is noticed; a poll is a few stats."""

MAX_DEADLINE_SHARE: Final = 0.75
"""A fixed handler deadline never takes more than this part of what the runtime waits."""

STOP_LIMIT_S: Final = 2.0
"""How long the end waits for housekeeping, which may hang on a host read."""

DEFAULT_RUN_DIR: Final = "/run/claim2core"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleOptions:
    """What the command line decides."""

    config_path: Path | None = None
    overrides: Sequence[str] = field(default_factory=tuple)
    "`option=value` texts; they win over every file."
    root: str = "/"
    "Where the host's file system is seen."
    run_dir: str = DEFAULT_RUN_DIR
    max_attempts: int | None = None
    "Failed attempts in a row to reach the runtime before giving up; None = never."


def rules_of(config: Config) -> Rules:
    """Give the rules of decisions that a configuration means."""
    claims = config.claims
    return Rules(
        mode=config.mode,
        effects=Effects(
            on_unverified=claims.on_unverified,
            on_forged=claims.on_forged,
            on_malformed=claims.on_malformed,
        ),
        rejects_foreign_violation=claims.on_foreign_violation is ViolationEffect.REJECT,
        reserved_namespaces=frozenset(config.reserved_namespaces),
    )


def evidence_reader_of(config: Config, root: str) -> EvidenceReader:
    """Give the reader of the evidence that a configuration names."""
    return EvidenceReader(
        root, cdi_dirs=tuple(config.cdi.spec_dirs), kubelet_dir=config.kubelet.root
    )


class PluginRole:
    """One plugin process; `run` serves until told to stop.

    Raises (on construction): ConfigProblems.
    """

    def __init__(self, options: RoleOptions) -> None:
        self._options = options
        self._chores: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._apply_lock = threading.Lock()
        self._source = ConfigSource(
            options.config_path, overrides=options.overrides, root=Path(options.root)
        )
        loaded = self._source.load()
        config = loaded.config
        configure_logging(config.log.level.value, config.log.format.value)
        _say_notes(loaded)
        self._evidence = evidence_reader_of(config, options.root)
        self._evidence_key = (config.cdi, config.kubelet)
        self.metrics = Metrics()
        self.book = Book()
        self.plugin = Claim2CorePlugin(
            decider=Decider(self._evidence.read, rules_of(config)),
            readback=ReadBack(CgroupReader(options.root), lambda: self.plugin.decider),
            book=self.book,
            metrics=self.metrics,
            seeding=Seeding(config.scheduling, self.metrics, root=options.root),
            validates=lambda: self._source.current.config.validate_adjustments,
            on_configure=self._on_configure,
        )
        self.watch = ConnectionWatch(
            self.metrics,
            on_ready=lambda: self._chores.put("settle"),
            handler_deadline=self._handler_deadline,
        )
        self._runner = Runner(
            self.plugin,
            # A runtime that launched us named us by our file; else the configuration does.
            *self._identity(config),
            socket_path=config.plugin.socket_path,
            observer=self.watch,
            registration_timeout_s=config.plugin.registration_timeout.seconds,
            handler_deadline=self._handler_deadline,
            max_attempts=options.max_attempts,
        )

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. For the main thread of a process.

        Raises: HostError when another instance runs; the last failure when attempts are
        bounded and used up.
        """
        with InstanceLock(self._options.run_dir):
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self.stop())
            signal.signal(signal.SIGHUP, lambda *_: self._chores.put("reload"))
            log.info(
                "starting",
                extra={
                    "version": __version__,
                    "plugin": f"{self._runner.identity}",
                    "socket": "inherited"
                    if self._runner.is_prelaunched
                    else self._runner.socket_path,
                    "mode": self._source.current.config.mode.value,
                    "files": list(self._source.current.files),
                },
            )
            # Before the first container can start.
            self.plugin.seeding.open()
            # Collections happen in housekeeping, not in the middle of a container's start.
            gc.disable()
            chores = threading.Thread(target=self._housekeep, name="housekeeping", daemon=True)
            chores.start()
            try:
                self._runner.run()
            finally:
                self._chores.put("stop")
                chores.join(STOP_LIMIT_S)
        log.info("stopped", extra={"note": "running containers keep their cpusets"})

    def stop(self) -> None:
        """End `run` after requests already received are answered. Safe in signal handlers."""
        self.watch.stopping()
        self._runner.stop()

    @staticmethod
    def _identity(config: Config) -> tuple[str | None, str | None]:
        if SOCKET_VARIABLE in os.environ:
            return None, None
        return config.plugin.name, config.plugin.index

    def _handler_deadline(self, request_timeout_ms: int) -> float:
        fixed = self._source.current.config.plugin.handler_deadline.fixed
        if fixed is None:
            return default_handler_deadline(request_timeout_ms)
        # Answering later than the runtime waits gets the plugin dropped.
        return min(fixed.seconds, request_timeout_ms / 1000 * MAX_DEADLINE_SHARE)

    def _on_configure(self, request: api.ConfigureRequest) -> None:
        if not is_known(request.runtime_name, request.runtime_version, request.NRI_version):
            log.warning(
                "unknown runtime",
                extra={
                    "runtime": f"{request.runtime_name} {request.runtime_version}",
                    "effect": "CDI devices are taken as not reported, and the oldest events used",
                },
            )
        if request.config:
            self._apply(self._source.take_runtime_text(request.config), "the runtime's drop-in")

    def _housekeep(self) -> None:
        """Do what must not delay the runtime, one thing after the other."""
        endpoint: Endpoint | None = None
        notifier = self.watch.notifier
        pause_s = min(RELOAD_POLL_S, notifier.watchdog_interval_s or RELOAD_POLL_S)
        while True:
            try:
                chore = self._chores.get(timeout=pause_s)
            except queue.Empty:
                chore = "poll"
            if notifier.watchdog_interval_s:
                notifier.ping()
            if chore == "stop":
                if endpoint is not None:
                    endpoint.close()
                return
            try:
                if chore == "reload" or (chore == "poll" and self._source.changed()):
                    notifier.reloading()
                    self._apply(self._source.reload(), "files")
                    self.watch.reloaded()
                elif chore == "settle":
                    self.plugin.seeding.settle(self.book.claiming())
                    self.plugin.verifier.verify_all()
                    settle_memory()
                elif chore == "poll":
                    self.plugin.verifier.verify_again()
                    self.plugin.seeding.poll(self.book.claiming())
                    gc.collect()
                self._check_handlers()
                endpoint = self._kept_endpoint(endpoint)
            except Exception:
                # A task root: housekeeping goes on, the plugin was never in its hands.
                log.exception("housekeeping failed", extra={"chore": chore})

    def _check_handlers(self) -> None:
        session = self._runner.session
        nr_stuck = 0 if session is None else session.nr_stuck
        self.watch.health.set(
            "handlers",
            is_good=nr_stuck < MAX_STUCK_HANDLERS,
            detail=f"{nr_stuck} of {MAX_STUCK_HANDLERS} threads hang in a handler",
        )

    def _kept_endpoint(self, endpoint: Endpoint | None) -> Endpoint | None:
        # Imported late: not needed for registration.
        from nri_claim2core.agent.endpoint import Endpoint  # noqa: PLC0415

        address = self._source.current.config.metrics.listen
        if endpoint is not None:
            if endpoint.address == address:
                return endpoint
            endpoint.close()
        return Endpoint.open(
            address,
            health=self.watch.health,
            metrics=self.metrics,
            state=self._state,
            ledger=self.plugin.seeding.ledger,
        )

    def _state(self) -> Document:
        return state_document(
            self.book.claiming(),
            self._source.current.config.mode,
            self.watch.registration,
            self.watch.nr_registrations,
        )

    def _apply(self, outcome: ReloadOutcome, what: str) -> None:
        """Put a reload into force and say what it did; what runs keeps its decisions."""
        with self._apply_lock:
            config = outcome.loaded.config
            key = (config.cdi, config.kubelet)
            if key != self._evidence_key:
                self._evidence = evidence_reader_of(config, self._options.root)
                self._evidence_key = key
            self.plugin.decider = Decider(self._evidence.read, rules_of(config))
            configure_logging(config.log.level.value, config.log.format.value)
        self.metrics.count("claim2core_config_reloads_total", outcome.result)
        self.metrics.set("claim2core_config_last_reload_successful", outcome.result != "refused")
        self.metrics.set("claim2core_config_restart_pending", len(outcome.pending))
        if outcome.result == "refused":
            log.error(
                "configuration refused",
                extra={
                    "from": what,
                    "problems": [str(problem) for problem in outcome.problems],
                    "effect": "the configuration in force stays",
                },
            )
            return
        _say_notes(outcome.loaded)
        if outcome.changes or outcome.pending:
            log.info(
                "configuration",
                extra={
                    "from": what,
                    "changes": [f"{c} ({c.option.applies.value})" for c in outcome.changes],
                    "pending": [f"{c} ({c.option.applies.value})" for c in outcome.pending],
                },
            )


def _say_notes(loaded: Loaded) -> None:
    for note in loaded.notes:
        log.warning("configuration without effect", extra={"note": str(note)})


def settle_memory() -> None:
    """Give back what Synchronize left behind and take the rest out of the collector's sight.

    A full collection over the records of two thousand containers takes milliseconds that a
    container start would wait for; frozen objects are never visited again.
    """
    import ctypes  # noqa: PLC0415 - not needed for registration

    gc.collect()
    gc.freeze()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
