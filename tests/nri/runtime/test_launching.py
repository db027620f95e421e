"""Pre-launched plugins: file names, drop-ins, the bare environment and descriptor 3."""

import os
import socket
import stat
import sys
from pathlib import Path

import pytest

import nri_claim2core
from nri_claim2core.nri.errors import IdentityError, RegistrationError
from nri_claim2core.nri.runtime.launching import (
    check_name,
    parse_file_name,
    read_drop_in,
    spawn,
)

PLUGIN = """#!{python}
import os, sys
sys.path[:0] = {path!r}
from nri_claim2core.nri import Plugin, Runner, api
class Told(Plugin):
    def configure(self, request):
        with open({report!r}, "a") as file:
            file.write(request.config + "\\n")
    def create_container(self, request, call):
        reply = api.CreateContainerResponse()
        reply.adjust.annotations["environment"] = ",".join(sorted(os.environ))
        return reply
Runner(Told()).run()
"""


def executable(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def plugin_file(directory, name="42-told"):
    path = [str(Path(nri_claim2core.__file__).parents[1]), *sys.path[1:]]
    report = str(directory / "report")
    return executable(
        directory / name, PLUGIN.format(python=sys.executable, path=path, report=report)
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("logger", 'invalid plugin name "logger", idx-pluginname expected'),
        ("1-a", 'invalid plugin index "1", must be 2 digits'),
        ("x1-a", 'invalid plugin index "x1" (not [0-9][0-9])'),
        ("\u0660\u0661-a", 'invalid plugin index "\u0660\u0661" (not [0-9][0-9])'),
    ],
)
def test_bad_file_names_in_the_runtimes_words(name, text):
    with pytest.raises(IdentityError) as caught:
        parse_file_name(name)
    assert caught.value.message == text


def test_a_good_file_name_keeps_later_dashes():
    assert parse_file_name("03-a-b") == ("03", "a-b")


@pytest.mark.parametrize("name", ["", "a b", "ä", "a/b"])
def test_bad_names(name):
    with pytest.raises(IdentityError):
        check_name(name)


def test_the_drop_in_with_the_index_wins(tmp_path):
    assert read_drop_in(tmp_path, "10", "a") == ""
    (tmp_path / "a.conf").write_text("plain")
    assert read_drop_in(tmp_path, "10", "a") == "plain"
    (tmp_path / "10-a.conf").write_text("indexed")
    assert read_drop_in(tmp_path, "10", "a") == "indexed"


def test_environment_and_descriptors_of_the_child(tmp_path):
    script = executable(
        tmp_path / "05-probe",
        "#!/bin/sh\n"
        f"/usr/bin/env > {tmp_path}/env\n"
        f"exec /bin/ls -l /proc/self/fd > {tmp_path}/fds\n",
    )
    ours, theirs = socket.socketpair()
    with ours, theirs, Path("/dev/zero").open("rb") as leak:
        os.set_inheritable(leak.fileno(), True)
        pid = spawn(script, "05", "probe", theirs)
        assert os.waitpid(pid, 0)[1] == 0
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    # The shell adds PWD and the like on its own.
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {
        "NRI_PLUGIN_NAME",
        "NRI_PLUGIN_IDX",
        "NRI_PLUGIN_SOCKET",
    }
    lines = (tmp_path / "fds").read_text().splitlines()
    targets = {words[-3]: words[-1] for words in map(str.split, lines) if words[-2:-1] == ["->"]}
    own = {key for key, target in targets.items() if target.startswith("/proc/")}
    assert targets.keys() - own == {"0", "1", "2", "3"}
    assert targets["3"].startswith("socket:")
    assert targets["0"] == "/dev/null"


def test_a_launched_plugin_registers_and_is_killed(tmp_path, runtimes, pods, containers):
    path = plugin_file(tmp_path)
    (tmp_path / "42-told.conf").write_text("mode: x")
    runtime = runtimes()
    pid = runtime.launch(path, config_directory=tmp_path)
    (info,) = runtime.plugins
    assert (info.label, info.process_id, info.events) == ("42-told", pid, 0x8)
    assert (tmp_path / "report").read_text() == "mode: x\n"
    runtime.run_pod(pods())
    seen = runtime.create_container("pod1", containers()).container.annotations["environment"]
    assert {"NRI_PLUGIN_IDX", "NRI_PLUGIN_NAME", "NRI_PLUGIN_SOCKET"} <= set(seen.split(","))
    assert not {"PATH", "HOME"} & set(seen.split(","))
    runtime.restart()
    (again,) = runtime.plugins
    assert again.process_id != pid
    assert (tmp_path / "report").read_text() == "mode: x\n" * 2
    runtime.close()
    for gone in (pid, again.process_id):
        with pytest.raises(ProcessLookupError):
            os.kill(gone, 0)


def test_an_executable_that_never_registers_is_refused(tmp_path, runtimes):
    runtime = runtimes(registration_timeout_ms=5000)
    with pytest.raises(RegistrationError, match="failed to register plugin, connection closed"):
        runtime.launch(executable(tmp_path / "10-dies", "#!/bin/sh\nexit 3\n"))
    with pytest.raises(FileNotFoundError):
        runtime.launch(tmp_path / "10-missing")
    assert runtime.plugins == ()


def test_a_plugin_that_hangs_is_killed(tmp_path, runtimes):
    runtime = runtimes(registration_timeout_ms=300)
    script = f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec /bin/sleep 600\n"
    with pytest.raises(RegistrationError, match="plugin registration timed out"):
        runtime.launch(executable(tmp_path / "10-hangs", script))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
