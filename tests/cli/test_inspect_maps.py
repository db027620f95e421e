"""`inspect` on real maps, threads and cgroups; bpftool and /proc are the second readers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nri_claim2core.agent.config_values import ListenAddress
from nri_claim2core.agent.http import HttpServer, Response
from nri_claim2core.bpfmap import readback, requests
from nri_claim2core.bpfmap.abi import ExecClass
from nri_claim2core.bpfmap.identity import read_cgroup_id, read_pid_ino
from nri_claim2core.bpfmap.rows import CgroupRow, Policy, TaskRow
from nri_claim2core.cli.main import main
from nri_claim2core.model.cpuset import CpuSet
from tests.bpfmap.tasks import Child
from tests.cli import handmade

pytestmark = pytest.mark.maps

NOBODY = 65534
LATENCY = Policy(
    cell=1,
    exec_class=ExecClass.LATENCY_CRITICAL,
    claim_key=0xC1A1_0000_0000_0001,
    weight=300,
    slice_ns=3_000_000,
)
BACKGROUND = Policy(cell=2, exec_class=ExecClass.BACKGROUND)


@pytest.fixture
def place(pins, tmp_path):
    """Arguments for these maps, with which no plugin of this machine is asked."""
    return ["--pin-dir", pins, "--set", f"metrics.listen=unix:{tmp_path}/none.sock"]


@pytest.fixture
def seeded(writer, cgroup, child):
    writer.put(
        requests.put_cell(1, CpuSet([0, 65, 1023])),
        requests.put_cell(2, CpuSet([1])),
        requests.put_cgroup(CgroupRow(cgroup_id=read_cgroup_id(str(cgroup)), policy=LATENCY)),
        requests.put_task(
            TaskRow(tid=child.tid, pid_ino=read_pid_ino(child.tid), policy=BACKGROUND)
        ),
    )
    return child


def ask(capsys, *words):
    """Exit code, and standard output as JSON."""
    code = main([*words, "-o", "json"])
    return code, json.loads(capsys.readouterr().out)


def refused(capsys, *words):
    """Exit code and error code of a command that prints no answer."""
    code = main([*words])
    printed = capsys.readouterr()
    assert printed.out == ""
    return code, printed.err.split("code: ")[1].strip()


def test_bpftool_sees_the_same_rows(seeded, pins, place, capsys):
    code, made = ask(capsys, "inspect", "map", *place)
    assert (code, made["kind"], made["apiVersion"]) == (
        0,
        "Maps",
        "claim2core.gthulhu.io/v1alpha1",
    )
    policy = {
        "generation": "generation",
        "cell": "cell",
        "cellGeneration": "cell_generation",
        "weight": "weight",
        "sliceNs": "slice_ns",
        "leaseEndNs": "lease_end_ns",
        "flags": "flags",
    }
    classes = {1: "latency-critical", 4: "background"}
    for ours, theirs, name, keys in (
        (made["cgroups"], "c2c_cgroups", "cgroupId", {"cgroupId": "cgroup_id"}),
        (
            made["tasks"],
            "c2c_tasks",
            "tid",
            {
                "tid": "tid",
                "tgid": "tgid",
                "cgroupId": "cgroup_id",
                "startBoottimeNs": "start_boottime_ns",
                "pidIno": "pid_ino",
            },
        ),
    ):
        dumped = {row["key"]: row["value"] for row in handmade.dump(pins, theirs)}
        assert {row[name] for row in ours} == set(dumped)
        for row in ours:
            value = dumped[row[name]]
            assert {key: row[key] for key in keys} == {
                key: value[member] for key, member in keys.items()
            }
            assert {key: row[key] for key in policy} == {
                key: value["policy"][member] for key, member in policy.items()
            }
            assert int(row["claimKey"], 16) == value["policy"]["claim_key"]
            assert row["class"] == classes[value["policy"]["exec_class"]]
            assert (row["holds"], row["sealed"]) == (True, True)
    cells = [row for row in handmade.dump(pins, "c2c_cells") if row["value"]["state"]]
    assert [(c["cell"], c["generation"], c["dsqId"]) for c in made["cells"]] == [
        (row["key"], row["value"]["generation"], row["value"]["dsq_id"]) for row in cells
    ]
    masks = [sum(word << 64 * i for i, word in enumerate(row["value"]["mask"])) for row in cells]
    assert [c["cpus"] for c in made["cells"]] == ["", "0,65,1023", "1"]
    assert masks == [0, 1 | 1 << 65 | 1 << 1023, 2]
    [control] = [row["value"] for row in handmade.dump(pins, "c2c_control")]
    assert [made["control"][k] for k in ("generation", "floor", "token", "writerTgid", "abi")] == [
        control[k] for k in ("generation", "floor", "token", "writer_tgid", "abi")
    ]
    assert made["control"]["writerAlive"] is True
    assert made["stats"]["results"]["ok"] == 4
    assert made["plugin"]["answered"] is False


def test_one_map_alone(seeded, place, capsys):
    code, made = ask(capsys, "inspect", "map", "cells", *place)
    assert code == 0
    assert set(made) == {"apiVersion", "kind", "pinDir", "plugin", "cells"}


def test_what_governs_a_thread(seeded, cgroup, place, capsys):
    second = seeded.start_thread()
    os.sched_setaffinity(second, {0})
    path = "/" + cgroup.name
    expected = {
        # The row of the leader is its own; the other thread has the cgroup's.
        seeded.tid: ("task", "background", "its own row", "1"),
        second: ("cgroup", "latency-critical", f"the row of cgroup {path}", "0,65,1023"),
        os.getpid(): ("none", "default", "no row: default class, cell 0", ""),
    }
    for tid, (source, kind, words, cpus) in expected.items():
        code, made = ask(capsys, "inspect", "task", str(tid), *place)
        assert code == 0
        assert (made["governedBy"], made["policy"]["class"]) == (source, kind)
        assert (made["explanation"], made["cellCpus"]) == (words, cpus)
        assert made["comm"] == Path(f"/proc/{tid}/comm").read_text().strip()
        assert made["pidIno"] == read_pid_ino(tid)
        assert f"0::{made['cgroup']}" in Path(f"/proc/{tid}/cgroup").read_text().splitlines()
        allowed = CpuSet(os.sched_getaffinity(tid))
        assert made["affinity"] == str(allowed)
        assert (made["tid"], made["tgid"]) == (tid, seeded.tid if tid == second else tid)
    assert str(CpuSet(os.sched_getaffinity(second))) == "0"


def test_a_thread_that_left_its_cgroup_is_told_so(seeded, cgroup, place, capsys):
    inner = cgroup / "inner"
    inner.mkdir()
    seeded.enter(inner)
    _, made = ask(capsys, "inspect", "task", str(seeded.tid), *place)
    assert (made["taskVerdict"], made["governedBy"]) == ("other-cgroup", "cgroup")
    assert made["governingCgroup"] == f"/{cgroup.name}"
    assert made["notes"][0] == ("its own row is not used: its thread is in another cgroup now")
    _, rows = ask(capsys, "inspect", "map", "tasks", *place)
    assert [row["faults"] for row in rows["tasks"]] == [["other-cgroup"]]


def test_a_container_with_its_row_cell_and_threads(seeded, cgroup, place, capsys):
    inner = cgroup / f"cri-containerd-{os.getpid():064x}.scope"
    inner.mkdir()
    with Child() as other:
        other.enter(inner)
        threads = {other.tid, other.start_thread()}
        _, made = ask(capsys, "inspect", "container", f"{os.getpid():064x}", *place)
        assert {each["tid"] for each in made["threads"]} == threads
        assert {each["governedBy"] for each in made["threads"]} == {"cgroup"}
        assert made["cgroup"] == f"/{cgroup.name}/{inner.name}"
        assert [each["cgroupId"] for each in made["cgroups"]] == [inner.stat().st_ino]
        assert made["governingCgroup"] == f"/{cgroup.name}"
        assert made["row"]["cgroupId"] == cgroup.stat().st_ino
        assert (made["cell"]["cell"], made["cell"]["cpus"]) == (1, "0,65,1023")
        for where in (str(cgroup), f"/{cgroup.name}", f"/{cgroup.name}/"):
            code, whole = ask(capsys, "inspect", "container", "--cgroup", where, *place)
            assert code == 0
            listed = {
                int(word)
                for file in cgroup.glob("**/cgroup.threads")
                for word in file.read_text().split()
            }
            assert {each["tid"] for each in whole["threads"]} == listed
            assert threads | {seeded.tid} <= listed


def test_the_plugins_ledger_adds_whose_rows_they_are(seeded, cgroup, pins, tmp_path, capsys):
    row = {
        "map": "cgroups",
        "key": cgroup.stat().st_ino,
        "generation": 4,
        "claims": ["8d2b7a4e-5c1f-4f0b-9a34-7e6d0c1b2a93"],
        "pod": "batch/solver",
        "container": "main",
        "containerId": "feedc0de" * 8,
        "cgroup": str(cgroup),
        "cgroupId": cgroup.stat().st_ino,
        "class": "latency-critical",
        "cell": 1,
        "state": "done",
    }
    page = {"apiVersion": "claim2core.gthulhu.io/v1alpha1", "kind": "Ledger", "rows": [row]}
    address = ListenAddress.parse(f"unix:{tmp_path}/http.sock")
    server = HttpServer(address, {"/ledger": lambda _: Response(json.dumps(page).encode())})
    server.start()
    place = ["--pin-dir", pins, "--set", f"metrics.listen={address}"]
    try:
        # The cgroup is not named after the container: the ledger leads there.
        code, made = ask(capsys, "inspect", "container", "feedc0de", *place)
        assert main(["inspect", "map", "cgroups", *place]) == 0
    finally:
        server.close()
    assert (code, made["plugin"]["answered"]) == (0, True)
    assert made["cgroup"] == f"/{cgroup.name}"
    assert made["row"]["provenance"]["pod"] == "batch/solver"
    text = capsys.readouterr().out
    assert "batch/solver" in text
    assert "without provenance" not in text


def test_asking_disturbs_nobody(seeded, loaded, writer, place, capsys):
    pins = loaded.maps.directory
    *_, line = Path(f"/proc/{seeded.tid}/cgroup").read_text().splitlines()
    before = readback.read_control(loaded.maps)
    pinned = sorted(Path(pins).iterdir())
    for words in (
        ["task", str(seeded.tid)],
        ["container", "--cgroup", line.removeprefix("0::")],
        ["map"],
    ):
        assert main(["inspect", *words, *place]) == 0
    capsys.readouterr()
    assert readback.read_control(loaded.maps) == before
    assert sorted(Path(pins).iterdir()) == pinned
    loaded.maps.check_pins()
    # The writer is still the one.
    writer.put(requests.put_cell(3, CpuSet([1])))


def test_a_row_planted_by_hand_is_seen_as_such(cgroup, pins, child, place, capsys):
    handmade.make_set(pins, abi=1)
    number = cgroup.stat().st_ino
    planted = bytearray(72)
    planted[0] = 1  # generation
    planted[56:64] = number.to_bytes(8, sys.byteorder)
    handmade.write(pins, "c2c_cgroups", number.to_bytes(8, sys.byteorder), bytes(planted))
    code, made = ask(capsys, "inspect", "map", "cgroups", *place)
    [row] = made["cgroups"]
    assert (code, row["cgroupId"], row["path"]) == (0, number, f"/{cgroup.name}")
    assert (row["holds"], row["sealed"], row["faults"]) == (False, False, ["foreign"])
    # The kernel side says so too.
    _, thread = ask(capsys, "inspect", "task", str(child.tid), *place)
    assert (thread["cgroupVerdict"], thread["governedBy"]) == ("torn", "none")
    words = "its seal does not fit: another hand wrote it"
    assert thread["notes"] == [f"the row of cgroup /{cgroup.name} is not used: {words}"]


def test_a_cell_planted_in_a_state_that_there_is_not(pins, place, capsys):
    handmade.make_set(pins, abi=1)
    planted = bytearray(160)
    planted[152] = 9
    handmade.write(pins, "c2c_cells", (1).to_bytes(4, sys.byteorder), bytes(planted))
    assert refused(capsys, "inspect", "map", *place) == (3, "C2C-INSPECT-04")
    assert refused(capsys, "sweep", "--dry-run", *place) == (3, "C2C-INSPECT-04")


def test_no_rows_at_all(loaded, place, capsys):
    code, made = ask(capsys, "inspect", "map", *place)
    assert (code, made["cells"], made["cgroups"], made["tasks"]) == (0, [], [], [])
    assert main(["inspect", "map", *place]) == 0
    text = capsys.readouterr().out
    assert "Cgroup rows: none" in text
    assert "Thread rows: none" in text
    assert "Writer      nobody yet" in text


def test_ten_thousand_rows(writer, cgroup, place, capsys):
    directories = [cgroup / f"c{i}" for i in range(10_000)]
    for directory in directories:
        directory.mkdir()
    ids = {directory.stat().st_ino: f"/{cgroup.name}/{directory.name}" for directory in directories}
    writer.put(
        requests.put_cell(1, CpuSet([0])),
        *(requests.put_cgroup(CgroupRow(cgroup_id=number, policy=LATENCY)) for number in ids),
    )
    code, made = ask(capsys, "inspect", "map", "cgroups", *place)
    assert code == 0
    assert {row["cgroupId"]: row["path"] for row in made["cgroups"]} == ids
    assert all(row["holds"] for row in made["cgroups"])
    assert main(["inspect", "map", *place]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "Cgroup rows: 10000" in lines
    # A path is shown whole, however long.
    assert max(len(line) for line in lines if place[1] not in line) <= 80


def test_nothing_is_made_where_maps_are_missing(bpffs, pins, place, capsys):
    for words in (["map"], ["task", str(os.getpid())], ["container", "--cgroup", "/"]):
        answer = refused(capsys, "inspect", *words, *place)
        assert answer == (3, "C2C-BPF-01")
    assert refused(capsys, "sweep", *place) == (3, "C2C-BPF-01")
    assert not Path(pins).exists()


def test_maps_of_another_abi(bpffs, pins, place, capsys):
    handmade.make_set(pins, abi=2)
    for words in (["map"], ["task", str(os.getpid())]):
        answer = refused(capsys, "inspect", *words, *place)
        assert answer == (3, "C2C-BPF-02")


def test_a_map_unpinned_behind_our_back(loaded, pins, place, capsys):
    Path(pins, "c2c_tasks").unlink()
    answer = refused(capsys, "inspect", "map", *place)
    assert answer == (3, "C2C-BPF-03")


def test_no_bpf_file_system(tmp_path, capsys):
    for words in (["map"], ["task", "1"], ["container", "--cgroup", "/"]):
        answer = refused(capsys, "inspect", *words, "--pin-dir", str(tmp_path / "claim2core"))
        assert answer == (3, "C2C-BPF-05")
    assert not (tmp_path / "claim2core").exists()


@pytest.mark.parametrize("words", [["map"], ["task", "1"], ["container", "--cgroup", "/"]])
def test_without_the_capability(loaded, pins, words):
    # Everything is imported while still root: checkout and interpreter may be root's alone.
    program = (
        "import encodings.latin_1, encodings.unicode_escape, os, sys;"
        "from nri_claim2core.agent import inspection_documents;"
        "from nri_claim2core.cli import inspect_actions, main;"
        f"os.setgroups([]); os.setresgid(*[{NOBODY}] * 3); os.setresuid(*[{NOBODY}] * 3);"
        "sys.exit(main.main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "inspect", *words, "--pin-dir", pins],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert "code: C2C-BPF-06" in done.stderr
    assert "needs CAP_BPF" in done.stderr


def test_what_is_gone_is_not_found(loaded, cgroup, place, capsys):
    with Child() as child:
        tid = child.tid
    answer = refused(capsys, "inspect", "task", str(tid), *place)
    assert answer == (4, "C2C-BPF-21")
    answer = refused(capsys, "inspect", "container", "--cgroup", f"{cgroup}/gone", *place)
    assert answer == (4, "C2C-BPF-24")
    answer = refused(capsys, "inspect", "container", f"no-such-{os.getpid()}", *place)
    assert answer == (4, "C2C-INSPECT-02")


def test_a_prefix_of_several_containers_is_refused(loaded, cgroup, place, capsys):
    stem = f"twice{os.getpid()}"
    for name in (f"{stem}a", f"{stem}b"):
        (cgroup / name).mkdir()
    assert refused(capsys, "inspect", "container", stem, *place) == (2, "C2C-INSPECT-03")
    code, made = ask(capsys, "inspect", "container", f"{stem}b", *place)
    assert (code, made["cgroup"]) == (0, f"/{cgroup.name}/{stem}b")
    assert made["row"] is None


def test_another_pid_namespace_is_named(loaded, cgroup, child, place):
    program = "import sys; from nri_claim2core.cli.main import main; sys.exit(main(sys.argv[1:]))"

    def inside(*words):
        line = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", program]
        return subprocess.run(
            [*line, "inspect", *words, *place],
            capture_output=True,
            text=True,
            check=False,
        )

    done = inside("task", "1")
    assert (done.returncode, done.stdout) == (3, "")
    assert "code: C2C-BPF-07" in done.stderr
    # What needs no TIDs is still shown.
    done = inside("container", "--cgroup", str(cgroup), "-o", "json")
    made = json.loads(done.stdout)
    assert (done.returncode, made["cgroup"], made["threads"]) == (0, f"/{cgroup.name}", [])
    assert "pid namespace" in made["problem"]
