"""A process that makes pods come and go, so that a test's starts have company.

    python -m e2e.hammer ADDRESS CGROUP_PARENT LOG_ROOT POD_UID=DEVICE,... ...

For each pod UID one pod, with a claiming container for the device given (none: without a
claim); all are created, started, looked at, stopped and removed in turn until standard input
ends. Prints one JSON line at the end: containers started, and first masks seen for each pod.
"""

from __future__ import annotations

import json
import select
import sys
from itertools import cycle
from pathlib import Path

from nri_claim2core.lab.cri import CriClient
from nri_claim2core.lab.workload import FIRST_MASK_IMAGE, wait_for_first_mask


def main(address: str, cgroup_parent: str, log_root: str, *pods: str) -> None:
    """Go on until standard input ends."""
    started = 0
    seen: dict[str, list[list[int]]] = {}
    with CriClient(
        Path(address),
        cgroup_parent=lambda uid: f"{cgroup_parent}/pod{uid}",
        log_root=Path(log_root),
    ) as cri:
        running = [
            (cri.run_pod(f"hammer-{number}", uid=text.partition("=")[0]), text.partition("=")[2])
            for number, text in enumerate(pods)
        ]
        print("ready", flush=True)
        for attempt, (pod, device) in enumerate(cycle(running)):
            if select.select([sys.stdin], [], [], 0)[0]:
                break
            ref = cri.create_container(
                pod,
                "hammered",
                image=FIRST_MASK_IMAGE,
                args=["pause"],
                cdi_devices=[device] if device else [],
                attempt=attempt,
            )
            cri.start(ref.id)
            mask = sorted(wait_for_first_mask(ref.log_path).cpus)
            masks = seen.setdefault(pod.uid, [])
            if mask not in masks:
                masks.append(mask)
            cri.stop(ref.id)
            cri.remove(ref.id)
            started += 1
        for pod, _ in running:
            cri.remove_pod(pod)
    print(json.dumps({"started": started, "seen": seen}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
