"""Reconnecting over a real socket file, pre-launched plugins, stopping, back-off."""

from __future__ import annotations

import queue
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from nri_claim2core.model.errors import Claim2CoreError
from nri_claim2core.nri import Plugin, Runner
from nri_claim2core.nri import nri_pb2 as api
from nri_claim2core.nri.errors import (
    ConnectionLostError,
    IdentityError,
    NotAllowedError,
    RegistrationError,
    SocketError,
)
from nri_claim2core.nri.runner import Backoff
from tests.nri.helpers import GIVE_UP_S, Peer, Recorder


class Quick(Plugin):
    def __init__(self):
        self.states = []

    def create_container(self, request, call):
        return None

    def synchronize(self, pods, containers):
        self.states.append([pod.id for pod in pods])


class Listener:
    """The runtime's socket file."""

    def __init__(self, path):
        self.path = path
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.bind(path)
        self._sock.listen()
        self._sock.settimeout(GIVE_UP_S)
        self._peers = []

    def accept(self):
        sock, _ = self._sock.accept()
        self._peers.append(Peer(sock))
        return self._peers[-1]

    def unlink(self):
        """Stop listening; connections stay."""
        self._sock.close()
        Path(self.path).unlink()

    def remove(self):
        self.unlink()
        for peer in self._peers:
            peer.close()


class Waits:
    """Stands in for sleeping: the test sees each delay and lets it end."""

    def __init__(self):
        self.delays = queue.SimpleQueue()
        self._go = queue.SimpleQueue()

    def __call__(self, seconds):
        self.delays.put(seconds)
        return self._go.get(timeout=GIVE_UP_S)

    def step(self, *, stop=False):
        delay = self.delays.get(timeout=GIVE_UP_S)
        self._go.put(stop)
        return delay


@contextmanager
def running(plugin, **options):
    recorder = Recorder()
    options = {"environment": {}, "program": "10-test", "observer": recorder} | options
    runner = Runner(plugin, **options)
    runner.recorder = recorder
    runner.failure = None

    def run():
        try:
            runner.run()
        except Claim2CoreError as failure:
            runner.failure = failure

    thread = threading.Thread(target=run)
    thread.start()
    runner.join = lambda: thread.join(GIVE_UP_S)
    try:
        yield runner
    finally:
        runner.stop()
        runner.join()
        assert not thread.is_alive()


# -- reconnecting -----------------------------------------------------------------------------


def test_a_lost_socket_is_dialed_again_and_the_state_taken_anew(tmp_path):
    path = str(tmp_path / "nri.sock")
    plugin, waits = Quick(), Waits()
    listener = Listener(path)
    with running(plugin, socket_path=path, wait=waits) as runner:
        for name in ("first", "second"):
            peer = listener.accept()
            runner.recorder.next("connected")
            peer.accept_registration()
            peer.configure()
            runner.recorder.next("registered")
            peer.synchronize(pods=[api.PodSandbox(id=name)])
            runner.recorder.next("synchronized")
            peer.close()
            assert runner.recorder.next("lost").message == "the runtime closed the connection"
            waits.step(stop=name == "second")
        runner.join()
    assert plugin.states == [["first"], ["second"]]
    assert runner.failure is None
    listener.remove()


def test_a_replaced_socket_file_is_found(tmp_path):
    path = str(tmp_path / "nri.sock")
    waits = Waits()
    old = Listener(path)
    with running(Quick(), socket_path=path, wait=waits) as runner:
        peer = old.accept()
        peer.set_up()
        # The runtime restarts: first the file goes, then the connection, later a new file.
        old.unlink()
        peer.close()
        for told in ("connected", "registered", "synchronized", "lost"):
            runner.recorder.next(told)
        waits.step()
        missing = runner.recorder.next("unreachable")
        assert isinstance(missing, SocketError)
        assert missing.path == path
        new = Listener(path)
        waits.step()
        peer = new.accept()
        peer.set_up()
        runner.recorder.next("connected")
        assert runner.recorder.next("registered").runtime_name == "containerd"
        runner.stop()
        peer.expect_closed()
    new.remove()


def test_back_off_grows_until_the_state_was_taken_over(tmp_path):
    path = str(tmp_path / "nri.sock")
    waits = Waits()
    listener = Listener(path)
    backoff = Backoff(1, 8, chance=lambda: 1.0)
    with running(Quick(), socket_path=path, wait=waits, backoff=backoff):
        listener.accept().close()  # not even registered
        assert waits.step() == 1
        peer = listener.accept()  # registered and dropped at Synchronize
        peer.accept_registration()
        peer.configure()
        peer.close()
        assert waits.step() == 2
        peer = listener.accept()
        peer.set_up()
        peer.close()
        assert waits.step(stop=True) == 1
    listener.remove()


def test_back_off_doubles_to_its_limit_and_is_spread():
    backoff = Backoff(chance=lambda: 0.0)
    assert [backoff.delay() for _ in range(8)] == [
        0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0,
    ]  # fmt: skip
    backoff.reset()
    assert backoff.delay() == 0.025
    backoff = Backoff(chance=lambda: 1.0)
    assert [backoff.delay() for _ in range(8)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    backoff = Backoff()
    assert all(0.025 <= Backoff().delay() <= 0.05 for _ in range(100))


def test_attempts_may_be_bounded(tmp_path):
    path = str(tmp_path / "missing.sock")
    waits = Waits()
    with running(Quick(), socket_path=path, wait=waits, max_attempts=3) as runner:
        waits.step()
        waits.step()
        runner.join()
    assert isinstance(runner.failure, SocketError)
    assert runner.recorder.next("unreachable").errno == 2
    assert waits.delays.empty()


def test_bounded_attempts_count_failures_in_a_row(tmp_path):
    path = str(tmp_path / "nri.sock")
    waits = Waits()
    listener = Listener(path)
    with running(Quick(), socket_path=path, wait=waits, max_attempts=2) as runner:
        for is_last in (False, False, True):
            listener.accept().close()
            waits.step()
            peer = listener.accept()
            peer.set_up()
            peer.close()
            waits.step(stop=is_last)
        runner.join()
    assert runner.failure is None
    listener.remove()


def test_a_failed_registration_is_told_as_what_it_was(tmp_path):
    path = str(tmp_path / "nri.sock")
    waits = Waits()
    listener = Listener(path)
    with running(
        Quick(), socket_path=path, wait=waits, registration_timeout_s=0.05, max_attempts=1
    ) as runner:
        peer = listener.accept()
        runner.recorder.next("connected")
        assert isinstance(runner.recorder.next("lost"), RegistrationError)
        peer.take_registration()
        peer.expect_closed()
    assert isinstance(runner.failure, RegistrationError)
    listener.remove()


def test_updates_go_to_the_current_connection(tmp_path):
    path = str(tmp_path / "nri.sock")
    waits = Waits()
    listener = Listener(path)
    update = api.ContainerUpdate(container_id="c")
    with running(Quick(), socket_path=path, wait=waits) as runner:
        peer = listener.accept()
        peer.set_up(NRI_version="v0.12.2")
        thread = threading.Thread(target=runner.update_containers, args=([update], GIVE_UP_S))
        thread.start()
        event = peer.next_event()
        assert event.method == "UpdateContainers"
        peer.send(peer.connection.reply(event.stream_id, b""))
        thread.join()
        peer.close()
        waits.delays.get(timeout=GIVE_UP_S)
        with pytest.raises(NotAllowedError, match="registered connection"):
            runner.update_containers([update])
        waits._go.put(True)
    listener.remove()


def test_by_default_each_reason_not_to_be_registered_is_logged_once(tmp_path, caplog):
    path = str(tmp_path / "nri.sock")
    waits = Waits()
    with running(Quick(), socket_path=path, wait=waits, observer=None):
        for _ in range(2):
            waits.step()
        waits.delays.get(timeout=GIVE_UP_S)
        listener = Listener(path)
        for _ in range(2):
            waits._go.put(False)
            peer = listener.accept()
            event = peer.take_registration()
            peer.send(peer.connection.reply_error(event.stream_id, 2, "invalid plugin index"))
            peer.expect_closed()
            waits.delays.get(timeout=GIVE_UP_S)
        waits._go.put(False)
        peer = listener.accept()
        peer.set_up()
        peer.close()
        waits.step(stop=True)
    listener.remove()
    missing, refused = [each.getMessage() for each in caplog.records]
    assert missing.startswith(f"the runtime is not reached: {path}: No such file or directory")
    assert refused.startswith("the plugin is not registered: the runtime refused the plugin: inv")


# -- stopping ---------------------------------------------------------------------------------


def test_stopping_while_waiting_for_the_socket(tmp_path):
    backoff = Backoff(GIVE_UP_S * 10, GIVE_UP_S * 10)
    with running(Quick(), socket_path=str(tmp_path / "no.sock"), backoff=backoff) as runner:
        runner.recorder.next("unreachable")
        runner.stop()
        runner.join()
    assert runner.failure is None


def test_stopping_during_registration_is_no_failure():
    ours, theirs = socket.socketpair()
    peer = Peer(theirs)
    with running(Quick(), sock=ours) as runner:
        peer.take_registration()
        runner.stop()
        peer.expect_closed()
        runner.join()
    assert runner.failure is None
    peer.close()


def test_stopping_before_the_start():
    ours, theirs = socket.socketpair()
    recorder = Recorder()
    runner = Runner(Quick(), "x", "10", sock=ours, environment={}, observer=recorder)
    runner.stop()
    runner.run()
    recorder.next("connected")
    assert "closed by us" in recorder.next("lost").message
    theirs.close()


def test_an_observer_that_raises_does_not_end_the_runner(tmp_path, caplog):
    class Broken(Recorder):
        def on_unreachable(self, *_):
            raise ValueError("observer")

        on_connected = on_registered = on_synchronized = on_lost = on_unreachable

    path = str(tmp_path / "nri.sock")
    waits = Waits()
    with running(Quick(), socket_path=path, wait=waits, observer=Broken()):
        waits.step()
        waits.delays.get(timeout=GIVE_UP_S)
        listener = Listener(path)
        waits._go.put(False)
        peer = listener.accept()
        peer.set_up()
        peer.close()
        waits.step(stop=True)
    listener.remove()
    # Once by the runner, once by its connection.
    assert [record.message for record in caplog.records].count("nri observer failed") == 2


# -- connections that are given ----------------------------------------------------------------


def test_a_given_socket_is_served_to_its_end_and_not_replaced():
    ours, theirs = socket.socketpair()
    peer = Peer(theirs)
    with running(Quick(), sock=ours) as runner:
        assert runner.is_prelaunched
        peer.set_up()
        peer.close()
        runner.join()
        for told in ("connected", "registered", "synchronized"):
            runner.recorder.next(told)
        assert isinstance(runner.recorder.next("lost"), ConnectionLostError)
    assert runner.failure is None


def test_a_given_socket_that_fails_to_register_is_a_failure():
    ours, theirs = socket.socketpair()
    theirs.close()
    with running(Quick(), sock=ours) as runner:
        runner.join()
        runner.recorder.next("connected")
        assert runner.recorder.next("lost") is runner.failure
    assert isinstance(runner.failure, RegistrationError)


PROGRAM = """
import sys
from nri_claim2core.nri import Plugin, api, run

for module in ("asyncio", "ssl", "http", "yaml", "msgspec", "prometheus_client", "grpc"):
    assert module not in sys.modules, module

class Mine(Plugin):
    def create_container(self, request, call):
        return api.CreateContainerResponse(
            adjust=api.ContainerAdjustment(annotations={"by": sys.argv[0]})
        )

run(Mine())
"""


@contextmanager
def prelaunched(tmp_path, **environment):
    """The program as a runtime starts it: descriptor 3, three variables, no standard streams."""
    program = tmp_path / "07-mine"
    program.write_text(PROGRAM)
    ours, theirs = socket.socketpair()
    number = theirs.fileno()
    process = subprocess.Popen(
        [sys.executable, "-P", str(program)],
        env={"NRI_PLUGIN_SOCKET": str(number), "PYTHONPATH": str(Path.cwd())} | environment,
        pass_fds=[number],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    theirs.close()
    peer = Peer(ours)
    try:
        yield peer, process
    finally:
        peer.close()
        process.kill()
        process.communicate()


def test_a_prelaunched_plugin_ends_with_its_socket(tmp_path):
    with prelaunched(tmp_path) as (peer, process):
        request = peer.accept_registration()
        assert (request.plugin_idx, request.plugin_name) == ("07", "mine")
        peer.configure()
        peer.synchronize()
        answer = peer.call("CreateContainer", api.CreateContainerRequest())
        assert b"07-mine" in answer.payload
        peer.close()
        _, errors = process.communicate(timeout=GIVE_UP_S)
        assert (process.returncode, errors) == (0, b"")


def test_the_environment_of_the_runtime_names_the_plugin(tmp_path):
    with prelaunched(tmp_path, NRI_PLUGIN_NAME="other", NRI_PLUGIN_IDX="42") as (peer, _):
        request = peer.accept_registration()
        assert (request.plugin_idx, request.plugin_name) == ("42", "other")


def test_a_signal_ends_the_program_after_the_answers(tmp_path):
    with prelaunched(tmp_path) as (peer, process):
        peer.set_up()
        process.send_signal(signal.SIGTERM)
        peer.expect_closed()
        _, errors = process.communicate(timeout=GIVE_UP_S)
        assert (process.returncode, errors) == (0, b"")


def test_what_cannot_run_is_refused_at_once():
    with pytest.raises(IdentityError):
        Runner(Quick(), environment={}, program="claim2core")
    with pytest.raises(NotAllowedError, match="handles no event"):
        Runner(Plugin(), "x", "10", environment={})
    with pytest.raises(IdentityError, match="NRI_PLUGIN_SOCKET"):
        Runner(Quick(), "x", "10", environment={"NRI_PLUGIN_SOCKET": "x"})
