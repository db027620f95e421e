"""Every start: the workload's first instruction runs on its claim, with and without company.

The witness is the workload itself, which asks for its own affinity before it does anything
else. Each start alternates between two claims, so that a mask of the one before would show.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.plugin_node import HAS_CPUS_0_AND_1, NEEDS_CPUS_0_AND_1, all_cpus

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(not HAS_CPUS_0_AND_1, reason=NEEDS_CPUS_0_AND_1),
]

REPOSITORY = Path(__file__).parents[1]

STARTS = pytest.mark.parametrize(
    "starts", [pytest.param(20, id="20"), pytest.param(200, id="200", marks=pytest.mark.long)]
)


def start_and_stop(node, pod, claims, starts):
    """First mask and CPU of each start beside the claim's CPU."""
    seen = []
    for attempt in range(starts):
        claim = claims[attempt % len(claims)]
        workload = node.run(pod, claim, attempt=attempt)
        seen.append((int(claim.cpus), set(workload.first.cpus), workload.first.cpu))
        assert node.kernel(workload).cpus == {int(claim.cpus)}
        node.bed.cri.stop(workload.id)
        node.bed.cri.remove(workload.id)
    return seen


def check(seen, starts):
    assert len(seen) == starts
    wrong = [
        (number, claimed, mask, cpu)
        for number, (claimed, mask, cpu) in enumerate(seen)
        if mask != {claimed} or cpu not in {claimed, None}
    ]
    assert wrong == []


@contextmanager
def hammer(node, *claims):
    """Another process creates and stops containers: of each claim, and one without."""
    uids = [str(uuid.uuid4()) for _ in range(len(claims) + 1)]
    for uid, claim in zip(uids, claims, strict=False):
        node.hold(uid, claim)
    pods = [f"{uid}={claim.device}" for uid, claim in zip(uids, claims, strict=False)]
    paths = node.bed.paths
    command = [
        sys.executable, "-m", "e2e.hammer",
        str(paths.address), node.bed.cgroup_parent, str(paths.pod_log_dir), *pods, f"{uids[-1]}=",
    ]  # fmt: skip
    report = {}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    ) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield report
            output, _ = process.communicate("stop\n", timeout=60)
        finally:
            process.kill()
    report.update(json.loads(output))
    report["expected"] = {
        uid: [sorted(int(cpu) for cpu in claim.cpus.split(","))]
        for uid, claim in zip(uids, claims, strict=False)
    } | {uids[-1]: [sorted(all_cpus())]}


@STARTS
def test_every_first_mask_is_the_claim(node, starts):
    claims = [node.claim("0"), node.claim("1")]
    pod = node.pod(*claims)
    check(start_and_stop(node, pod, claims, starts), starts)
    assert node.plugin.registrations() == 1


@STARTS
def test_every_first_mask_is_the_claim_in_company(node, starts):
    claims = [node.claim("0"), node.claim("1")]
    pod = node.pod(*claims)
    with hammer(node, node.claim("1"), node.claim("0")) as report:
        seen = start_and_stop(node, pod, claims, starts)
    check(seen, starts)
    # The company had its claims, and was there.
    assert report["started"] >= starts // 4
    assert report["seen"] == report["expected"]
    assert node.plugin.registrations() == 1
    assert node.metric("claim2core_envelope_violations_total") == 0
    assert node.plugin.state()["containers"] == []
