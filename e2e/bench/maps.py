"""What seeding costs on this machine's kernel: time of writes and reads, memory of the maps.

usage: python -m e2e.bench.maps [-o json] [--quick]

Needs root and the BPF objects (make bpf). Maps live in a BPF file system of a private mount
namespace; rows are for a real cgroup and real threads. Figures are reported, never enforced.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from e2e.bench.figures import summary

GOAL_SEED_P99_US = 1000.0
BATCH_ROWS = 1000
CONTAINERS = 10_000
_INSIDE = "CLAIM2CORE_BENCH_MAPS_INSIDE"


def read_rss_kib() -> dict[str, int]:
    """Resident and anonymous memory of this process."""
    lines = (line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    found = {words[0].rstrip(":").lower(): int(words[1]) for words in lines}
    return {name: found[name] for name in ("rss", "anonymous")}


def read_memlock(fd: int) -> int:
    """Bytes that the kernel accounts to a map."""
    for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines():
        if line.startswith("memlock:"):
            return int(line.split()[1])
    raise LookupError("no memlock in fdinfo")


def timed_us(call: Callable[[], object], times: int) -> list[float]:
    """Durations of single calls."""
    samples = []
    for _ in range(times):
        begun = time.perf_counter_ns()
        call()
        samples.append((time.perf_counter_ns() - begun) / 1000)
    return samples


@contextmanager
def waiting_threads(count: int) -> Iterator[list[int]]:
    """TIDs of threads that wait."""
    end, ready = threading.Event(), threading.Barrier(count + 1)
    tids: list[int] = []

    def wait() -> None:
        tids.append(threading.get_native_id())
        ready.wait()
        end.wait()

    threads = [threading.Thread(target=wait) for _ in range(count)]
    for thread in threads:
        thread.start()
    ready.wait()
    try:
        yield tids
    finally:
        end.set()
        for thread in threads:
            thread.join()


def own_cgroup() -> str:
    """Directory of this process's cgroup in the default hierarchy."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    root = next(fields[1] for fields in mounts if fields[2] == "cgroup2")
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return root + next(line[3:] for line in lines if line.startswith("0::"))


def measure(pins: Path, times: int) -> dict[str, object]:
    """Everything, in one process that starts without BPF, as the plugin does."""
    before = read_rss_kib()
    from nri_claim2core.bpfmap import readback, requests, syscall  # noqa: PLC0415
    from nri_claim2core.bpfmap.identity import read_cgroup_id, read_pid_ino  # noqa: PLC0415
    from nri_claim2core.bpfmap.loader import load  # noqa: PLC0415
    from nri_claim2core.bpfmap.mutate import Writer  # noqa: PLC0415
    from nri_claim2core.bpfmap.rows import CgroupRow, Policy, TaskRow  # noqa: PLC0415
    from nri_claim2core.model.cpuset import CpuSet  # noqa: PLC0415

    begun = time.perf_counter_ns()
    loaded = load(str(pins / "claim2core"))
    load_ms = (time.perf_counter_ns() - begun) / 1e6
    writer = Writer(loaded)
    writer.take()
    after = read_rss_kib()

    directory, tid, policy = own_cgroup(), os.getpid(), Policy(cell=1)

    def seed() -> None:
        row = CgroupRow(cgroup_id=read_cgroup_id(directory), policy=policy)
        task = TaskRow(tid=tid, pid_ino=read_pid_ino(tid), policy=policy)
        writer.put(
            requests.put_cell(1, CpuSet([0])), requests.put_cgroup(row), requests.put_task(task)
        )

    def seed_and_read_back() -> None:
        seed()
        readback.resolve(loaded, tid)

    report: dict[str, object] = {
        "load_ms": round(load_ms, 1),
        "memory_of_the_process_kib": {name: after[name] - before[name] for name in after},
        "seed_us": summary(timed_us(seed, times)),
        "seed_and_read_back_us": summary(timed_us(seed_and_read_back, times)),
    }
    begun = time.perf_counter_ns()
    load(str(pins / "claim2core")).close()
    report["adopt_ms"] = round((time.perf_counter_ns() - begun) / 1e6, 1)

    with waiting_threads(BATCH_ROWS) as tids:
        rows = [
            requests.put_task(TaskRow(tid=one, pid_ino=read_pid_ino(one), policy=policy))
            for one in tids
        ]
        report[f"batch_of_{BATCH_ROWS}_us"] = summary(
            timed_us(lambda: writer.put(*rows), max(times // 50, 3))
        )
        report[f"read_{BATCH_ROWS}_rows_us"] = summary(
            timed_us(lambda: readback.read_tasks(loaded.maps), max(times // 50, 3))
        )
        report[f"iterate_{BATCH_ROWS}_threads_us"] = summary(
            timed_us(lambda: list(readback.read_views(loaded)), max(times // 50, 3))
        )

    # Rows by hand into a set that is not frozen: memory does not ask whose cgroup it is.
    syscall.map_freeze = lambda _: None
    roomy = load(str(pins / "memory"))
    empty = {name: read_memlock(fd) for name, fd in roomy.maps.fds.items()}
    for number in range(1, CONTAINERS + 1):
        for name in ("c2c_cgroups", "c2c_tasks"):
            info = roomy.maps.infos[name]
            key = number.to_bytes(info.key_size, sys.byteorder)
            if syscall.map_update(roomy.maps.fds[name], key, bytes(info.value_size)):
                raise RuntimeError(f"{name} took no row")
    filled = {name: read_memlock(fd) for name, fd in roomy.maps.fds.items()}
    report["map_memory_kib"] = {
        "empty": {name: size // 1024 for name, size in empty.items()},
        f"with_{CONTAINERS}_containers": {name: size // 1024 for name, size in filled.items()},
        "requests_of_the_writer": read_memlock(loaded.requests_fd) // 1024,
    }
    return report


def show(report: dict[str, object]) -> str:
    """Text for people."""
    lines = []
    for name, value in report.items():
        if isinstance(value, dict) and "p99" in value:
            value = f"p50 {value['p50']:.1f}  p99 {value['p99']:.1f}  max {value['max']:.1f}"  # noqa: PLW2901
        lines.append(f"{name:32} {value}")
    lines.append(f"{'goal':32} seed p99 <= {GOAL_SEED_P99_US:.0f} us")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Run in a mount namespace of its own, so that no mount is left behind."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.maps")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    options = parser.parse_args(arguments)
    if os.geteuid() != 0:
        print("bench: loading BPF objects needs root", file=sys.stderr)
        return 3
    if _INSIDE not in os.environ:
        again = [sys.executable, "-m", "e2e.bench.maps", *arguments]
        words = ["unshare", "--mount", "--propagation", "private", *again]
        return subprocess.run(words, check=False, env={**os.environ, _INSIDE: "1"}).returncode
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(["mount", "-t", "bpf", "bpf", directory], check=True)
        try:
            report = measure(Path(directory), 200 if options.quick else 5000)
        finally:
            subprocess.run(["umount", "--lazy", directory], check=True)
    print(json.dumps(report, indent=2) if options.output == "json" else show(report))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
