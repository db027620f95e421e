"""Requests that most tests make."""

from __future__ import annotations

from pathlib import Path

from nri_claim2core.bpfmap.identity import read_cgroup_id, read_pid_ino
from nri_claim2core.bpfmap.requests import Request, put_cgroup, put_task
from nri_claim2core.bpfmap.rows import CgroupRow, Policy, TaskRow

DEFAULT = Policy()


def seed_cgroup(cgroup: Path, policy: Policy = DEFAULT) -> Request:
    return put_cgroup(CgroupRow(cgroup_id=read_cgroup_id(str(cgroup)), policy=policy))


def task_row(tid: int, policy: Policy = DEFAULT, **more: int) -> TaskRow:
    return TaskRow(tid=tid, pid_ino=read_pid_ino(tid), policy=policy, **more)


def seed_task(tid: int, policy: Policy = DEFAULT, **more: int) -> Request:
    return put_task(task_row(tid, policy, **more))
