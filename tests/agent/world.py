"""A node in miniature: files as driver, kubelet and kernel write them, a runtime, our plugin.

The runtime is the embedded one and the socket is real; what the kernel would say about
cpusets is written by the test, so that every state can be had.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from nri_claim2core.agent.book import Book
from nri_claim2core.agent.decide import Decider, Rules
from nri_claim2core.agent.metrics import Metrics
from nri_claim2core.agent.plugin import Claim2CorePlugin
from nri_claim2core.agent.readback import ReadBack
from nri_claim2core.host.cgroups import CgroupReader
from nri_claim2core.host.evidence import EvidenceReader
from nri_claim2core.nri import api
from nri_claim2core.nri.observer import Observer
from nri_claim2core.nri.runner import Runner
from nri_claim2core.nri.runtime import EmbeddedRuntime
from tests.host.trees import CLAIM_A, CLAIM_B, Clock, Tree

POD = "1f0e9d8c-7b6a-4958-8473-625140392817"
OTHER_POD = "2a1b0c9d-8e7f-4a6b-9c5d-4e3f2a1b0c9d"
DEVICE_A = f"dra.k8s.io/cpu=claim-{CLAIM_A}"
DEVICE_B = f"dra.k8s.io/cpu=claim-{CLAIM_B}"


class World:
    """8 CPUs on 2 nodes; claim A has CPUs 2-3 (node 0), claim B 4-5 (node 1), both of POD."""

    def __init__(self, tmp_path, profile="containerd-2.4", rules=None, *, validates=False):
        self.tree = Tree(tmp_path / "root")
        self.tree.cpus("0-7", possible="0-7", present="0-7")
        self.tree.numa({0: "0-3", 1: "4-7"}, has_memory="0-1", online="0-1")
        self.tree.unified()
        self.tree.directory("/etc/cdi")
        self.tree.claim_file(CLAIM_A, "2-3")
        self.tree.claim_file(CLAIM_B, "4-5")
        self.hold({CLAIM_A: [POD], CLAIM_B: [POD]})
        self.rules = rules or Rules()
        self.profile = profile
        self.validates = validates
        self.socket = str(tmp_path / "nri.sock")
        self.evidence = EvidenceReader(self.tree.root, clock=Clock())
        self.nr = 0

    def hold(self, pods_of_claims):
        self.tree.checkpoint(
            [
                {
                    "ClaimUID": uid,
                    "ClaimName": f"claim-{uid[:4]}",
                    "Namespace": "default",
                    "PodUIDs": {pod: {} for pod in pods},
                    "DriverState": {
                        "dra.cpu": {
                            "Devices": [
                                {
                                    "PoolName": "node",
                                    "DeviceName": "cpudevnuma000",
                                    "ShareID": None,
                                    "RequestNames": ["cpus"],
                                    "CDIDeviceIDs": [f"dra.k8s.io/cpu=claim-{uid}"],
                                }
                            ]
                        }
                    },
                }
                for uid, pods in pods_of_claims.items()
            ]
        )

    def make_plugin(self):
        self.book = Book()
        self.metrics = Metrics()
        self.plugin = Claim2CorePlugin(
            decider=Decider(self.evidence.read, self.rules),
            readback=ReadBack(CgroupReader(self.tree.root), lambda: self.plugin.decider),
            book=self.book,
            metrics=self.metrics,
            validates=lambda: self.validates,
        )
        return self.plugin

    @contextmanager
    def running(self, runtime: EmbeddedRuntime, index="95", **options) -> Iterator[None]:
        """Our plugin registered and synchronized with `runtime`."""
        synchronized = threading.Event()

        class Watch(Observer):
            def on_synchronized(self):
                synchronized.set()

        runner = Runner(
            self.make_plugin(),
            "claim2core",
            index,
            socket_path=self.socket,
            observer=Watch(),
            environment={},
            **options,
        )
        before = len(runtime.plugins)
        thread = threading.Thread(target=runner.run)
        thread.start()
        try:
            assert synchronized.wait(10)
            runtime.wait_for_plugins(before + 1)
            yield
        finally:
            runner.stop()
            thread.join(10)
            assert not thread.is_alive()
            # The runtime may not have noticed yet, and would be counted with it next time.
            runtime.disconnect(f"{index}-claim2core")

    @contextmanager
    def runtime(self) -> Iterator[EmbeddedRuntime]:
        with EmbeddedRuntime(self.profile) as runtime:
            for uid in (POD, OTHER_POD):
                assert runtime.run_pod(self.pod(uid)).ok
            runtime.listen(self.socket)
            yield runtime

    def pod(self, uid=POD, **fields):
        pod = api.PodSandbox(id=f"sandbox-{uid[:8]}", uid=uid, name="pod", namespace="default")
        pod.MergeFrom(api.PodSandbox(**fields))
        return pod

    def container(self, *devices, env=(), cpus="", shares=None, name="main", pod=POD):
        """A container as a runtime makes it: CDI edits are in its environment already."""
        self.nr += 1
        made = api.Container(
            id=f"container-{self.nr}", pod_sandbox_id=f"sandbox-{pod[:8]}", name=name
        )
        made.CDI_devices.extend(api.CDIDevice(name=device) for device in devices)
        made.env.extend(["PATH=/bin", *env])
        made.linux.cgroups_path = f"/kubepods/pod{pod}/{made.id}"
        if cpus:
            made.linux.resources.cpu.cpus = cpus
        if shares is not None:
            made.linux.resources.cpu.shares.value = shares
        return made

    def kernel_says(self, container_id, cpus, mems="0", pod=POD):
        """What is in force in the container's cgroup."""
        self.tree.v2_cgroup(f"/kubepods/pod{pod}/{container_id}", cpus, mems)


def env_of(claim, cpus):
    """The variable that a CDI spec of the claim puts into a container."""
    return f"DRA_CPUSET_{claim}={cpus}"
