"""The examples of the package's README run, together."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

import nri_claim2core.nri as package
from nri_claim2core.nri import RpcError, Runner, api
from nri_claim2core.nri.session import MAX_STUCK_HANDLERS

README = Path(package.__file__).with_name("README.md").read_text()


def examples():
    plugin, runtime = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    namespace = {"__name__": "example"}
    exec(plugin, namespace)
    exec(runtime, namespace)
    return namespace


def test_the_plugin_pins_in_the_runtime(tmp_path):
    names = examples()
    runner = Runner(
        names["Pinner"](), "pinner", "50", socket_path=str(tmp_path / "nri.sock"), environment={}
    )
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        assert names["try_out"](tmp_path) == "2-3"
    finally:
        runner.stop()
        thread.join()


def test_the_plugin_alone():
    plugin = examples()["Pinner"]()
    pod = api.PodSandbox(id="p", annotations={"cpus.example.com": "1"})
    container = api.Container(id="c", pod_sandbox_id="p")
    plugin.synchronize([pod], [container])
    request = api.UpdateContainerRequest(container=container)
    (update,) = plugin.update_container(request, None).update
    assert (update.container_id, update.linux.resources.cpu.cpus) == ("c", "1")
    plugin.remove_container(api.RemoveContainerRequest(container=container), None)
    assert plugin.update_container(request, None) is None
    pod.annotations["cpus.example.com"] = "all"
    with pytest.raises(RpcError, match="is no CPU list"):
        plugin.create_container(api.CreateContainerRequest(pod=pod), None)


def test_figures_are_those_of_the_code():
    assert MAX_STUCK_HANDLERS == 8
    assert "Eight handlers can be stuck" in README
    for module in re.findall(r"`(\w+)`", README.partition("## Inside")[2]):
        if "_pb2" not in module and "." not in module:
            assert Path(package.__file__).with_name(f"{module}.py").exists(), module
