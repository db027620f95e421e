"""All root-owned evidence about a node, in one call per decision.

The sources are read one after the other and nothing is assumed about them being of one moment:
a claim is prepared (spec written, checkpoint stored) before kubelet asks for its container, so
reading later only ever sees more. What cannot be read is said in its own part; the other parts
stand. Safe for several threads.
"""

from __future__ import annotations

import time

from nri_claim2core.host.cdi import DEFAULT_DIRS, CdiReader
from nri_claim2core.host.checkpoint import CHECKPOINT_NAME, CheckpointReader
from nri_claim2core.host.cpu_manager import STATE_NAME, CpuManagerReader
from nri_claim2core.host.files import KUBELET_DIR, Clock
from nri_claim2core.host.topology import TopologyReader
from nri_claim2core.model.errors import HostError
from nri_claim2core.model.evidence import NodeEvidence


class EvidenceReader:
    """Reads CDI specs, kubelet's state files and the topology of the node at `root`."""

    def __init__(
        self,
        root: str = "/",
        *,
        cdi_dirs: tuple[str, ...] = DEFAULT_DIRS,
        kubelet_dir: str = KUBELET_DIR,
        clock: Clock = time.time_ns,
    ) -> None:
        self._cdi = CdiReader(root, cdi_dirs, clock=clock)
        self._checkpoint = CheckpointReader(root, f"{kubelet_dir}/{CHECKPOINT_NAME}", clock=clock)
        self._cpu_manager = CpuManagerReader(root, f"{kubelet_dir}/{STATE_NAME}", clock=clock)
        self._topology = TopologyReader(root)

    def read(self) -> NodeEvidence:
        """Give everything as it is now; parts that did not change are the same objects.

        Raises: nothing. Blocking: host read; when nothing changed, one listing and one stat
        per spec file, two stats and four small sysfs files.
        """
        try:
            topology = self._topology.read()
        except HostError:
            topology = None
        return NodeEvidence(
            cdi=self._cdi.read(),
            checkpoint=self._checkpoint.read(),
            online=topology.online if topology else None,
            possible=topology.possible if topology else None,
            topology=topology,
            cpu_manager=self._cpu_manager.read(),
        )
