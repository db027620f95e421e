"""Our plugin inside this process, at the other end of a socket pair: for scenarios.

The parts and their wiring are the role's (rules and evidence of a configuration, the book, the
read-back after synchronizing); what a process adds - signals, reload, HTTP - is left out.
"""

from __future__ import annotations

import socket
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from nri_claim2core.agent.book import Book
from nri_claim2core.agent.config import Config
from nri_claim2core.agent.config_problem import ConfigProblems, Place
from nri_claim2core.agent.config_source import ConfigSource
from nri_claim2core.agent.decide import Decider
from nri_claim2core.agent.documents import entry_document
from nri_claim2core.agent.metrics import Metrics
from nri_claim2core.agent.plugin import Claim2CorePlugin
from nri_claim2core.agent.readback import ReadBack
from nri_claim2core.agent.role import evidence_reader_of, rules_of
from nri_claim2core.host.cgroups import CgroupReader
from nri_claim2core.model.errors import Claim2CoreError
from nri_claim2core.nri import Plugin
from nri_claim2core.nri.runner import Runner
from nri_claim2core.nri.runtime import EmbeddedRuntime


def read_config(text: str, source: str) -> Config:
    """Give the configuration that a scenario asks for, on top of the defaults.

    Raises: ConfigProblems with the lines of `source`.
    """
    with tempfile.TemporaryDirectory(prefix="c2c-config-") as directory:
        file = Path(directory) / "claim2core.yaml"
        file.write_text(text)
        try:
            return ConfigSource(file).load().config
        except ConfigProblems as error:
            raise ConfigProblems(
                [
                    replace(problem, place=Place(source, problem.place.line))
                    for problem in error.problems
                ]
            ) from error


class AttachedPlugin:
    """A plugin served on a thread; `attach` gives the runtime's end of its socket away."""

    def __init__(self, plugin: Plugin, name: str, index: str) -> None:
        self._plugin = plugin
        self._name = name
        self._index = index
        self._thread: threading.Thread | None = None
        self.failure: Claim2CoreError | None = None
        "Why its connection ended, where it was not asked for."

    @property
    def label(self) -> str:
        """`NN-name`."""
        return f"{self._index}-{self._name}"

    def attach(self, runtime: EmbeddedRuntime) -> None:
        """Register with a runtime; returns when it is synchronized. Raises RegistrationError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        runner = Runner(self._plugin, self._name, self._index, sock=theirs)
        self.failure = None
        self._thread = threading.Thread(
            target=self._serve, args=(runner,), name=f"plugin-{self.label}", daemon=True
        )
        self._thread.start()
        runtime.attach(ours, self._name, self._index)

    def detach(self, runtime: EmbeddedRuntime) -> None:
        """Close the connection and wait for the thread."""
        runtime.disconnect(self.label)
        self.join()

    def join(self) -> None:
        """Wait until the connection has ended."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _serve(self, runner: Runner) -> None:
        try:
            runner.run()
        except Claim2CoreError as error:
            self.failure = error


class InProcessPlugin(AttachedPlugin):
    """Our plugin with a configuration, on the node at `root`."""

    def __init__(self, config: Config, root: Path) -> None:
        self._config = config
        self._book = Book()
        decider = Decider(evidence_reader_of(config, str(root)).read, rules_of(config))
        self._claim2core = Claim2CorePlugin(
            decider=decider,
            readback=ReadBack(CgroupReader(str(root)), lambda: decider),
            book=self._book,
            metrics=Metrics(),
            validates=lambda: config.validate_adjustments,
        )
        super().__init__(self._claim2core, config.plugin.name, config.plugin.index)

    def attach(self, runtime: EmbeddedRuntime) -> None:
        """Register, and read back what was there before, as the role does."""
        super().attach(runtime)
        self._claim2core.verifier.verify_all()
        self._claim2core.verifier.verify_again()

    def entry(self, container_id: str) -> dict[str, Any]:
        """Give all it knows of a container, nothing if it does not know it."""
        for entry in self._book.claiming():
            if entry.container.id == container_id:
                return entry_document(entry, self._config.mode)
        return {}
