"""`sweep` on real maps: what is listed and why, who may delete, and that only that is deleted."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from nri_claim2core.agent import manual_sweep
from nri_claim2core.agent.config_values import ListenAddress
from nri_claim2core.agent.http import HttpServer, Response
from nri_claim2core.agent.instance import InstanceLock
from nri_claim2core.agent.ledger_page import LedgerPage, Provenance
from nri_claim2core.bpfmap import requests
from nri_claim2core.bpfmap.identity import read_cgroup_id, read_pid_ino
from nri_claim2core.bpfmap.loader import load
from nri_claim2core.bpfmap.mutate import Writer
from nri_claim2core.bpfmap.rows import CgroupRow, Policy, TaskRow
from nri_claim2core.cli.main import main
from nri_claim2core.model.cpuset import CpuSet
from tests.bpfmap.tasks import Child
from tests.cli import handmade

pytestmark = pytest.mark.maps

NO_PLUGIN = LedgerPage(address="", problem="none")

# Becomes the writer of the maps at argv[1], seeds the cgroup at argv[2], and ends.
PLUGIN = """
import sys
from nri_claim2core.bpfmap import requests
from nri_claim2core.bpfmap.identity import read_cgroup_id
from nri_claim2core.bpfmap.loader import load
from nri_claim2core.bpfmap.mutate import Writer
from nri_claim2core.bpfmap.rows import CgroupRow, Policy
from nri_claim2core.model.cpuset import CpuSet
writer = Writer(load(sys.argv[1]))
writer.take()
row = CgroupRow(cgroup_id=read_cgroup_id(sys.argv[2]), policy=Policy(cell=1))
writer.put(requests.put_cell(1, CpuSet([0])), requests.put_cell(2, CpuSet([1])))
writer.put(requests.put_cgroup(row))
"""


class Node:
    """Maps of a plugin that has ended: one row that holds, one whose cgroup is gone."""

    def __init__(self, pins, cgroup, tmp_path):
        self.pins, self.run_dir = pins, str(tmp_path / "run")
        self.kept, gone = cgroup / "kept", cgroup / "gone"
        for directory in (self.kept, gone):
            directory.mkdir()
            subprocess.run([sys.executable, "-c", PLUGIN, pins, str(directory)], check=True)
        self.kept_id, self.gone_id = self.kept.stat().st_ino, gone.stat().st_ino
        gone.rmdir()
        self.place = ["--pin-dir", pins, "--run-dir", self.run_dir]
        self.place += ["--set", f"metrics.listen=unix:{tmp_path}/none.sock"]

    def ids(self):
        return {row["key"] for row in handmade.dump(self.pins, "c2c_cgroups")}

    def live_cells(self):
        rows = handmade.dump(self.pins, "c2c_cells")
        return [row["key"] for row in rows if row["value"]["state"]]


@pytest.fixture
def node(pins, cgroup, tmp_path):
    return Node(pins, cgroup, tmp_path)


def ask(capsys, *words):
    code = main([*words, "-o", "json"])
    return code, json.loads(capsys.readouterr().out)


def listed(made):
    return {(row["map"], row["key"]): row["reasons"] for row in made["rows"]}


def cgroup_row(directory, cell=1):
    return requests.put_cgroup(
        CgroupRow(cgroup_id=read_cgroup_id(str(directory)), policy=Policy(cell=cell))
    )


def test_every_reason_is_listed_and_what_holds_is_not(writer, cgroup, pins):
    names = ("old", "reused", "gone", "kept", "elsewhere")
    at = {name: cgroup / name for name in names}
    for directory in at.values():
        directory.mkdir()
    writer.put(*(requests.put_cell(index, CpuSet([index])) for index in (1, 2, 3)))
    [old] = writer.put(cgroup_row(at["old"]))
    with Child() as mover, Child() as ended:
        for child in (mover, ended):
            child.enter(at["kept"])
        writer.put(cgroup_row(at["reused"], cell=2), cgroup_row(at["gone"]), cgroup_row(at["kept"]))
        for tid in (mover.tid, ended.tid):
            row = TaskRow(tid=tid, pid_ino=read_pid_ino(tid), policy=Policy(cell=1))
            writer.put(requests.put_task(row))
        writer.put(requests.drain_cell(2), requests.free_cell(2), requests.put_cell(2, CpuSet([9])))
        numbers = {name: directory.stat().st_ino for name, directory in at.items()}
        at["gone"].rmdir()
        ended.end()
        mover.enter(at["elsewhere"])
        writer.raise_floor(old.generation + 1)
        plan = manual_sweep.plan_sweep(pins, lambda: NO_PLUGIN)
        found = {(row.map, row.key): [fault.value for fault in row.faults] for row in plan.rows}
        assert found == {
            ("cgroups", numbers["old"]): ["old-generation"],
            ("cgroups", numbers["reused"]): ["cell-stale"],
            ("cgroups", numbers["gone"]): ["cgroup-gone"],
            ("tasks", mover.tid): ["other-cgroup"],
            ("tasks", ended.tid): ["task-gone"],
            # Of its new generation nothing is named; the third never was.
            ("cells", 2): ["unused"],
            ("cells", 3): ["unused"],
        }
    # The row of `kept`, cell 0 and cell 1 stay.
    assert plan.nr_kept == 3
    assert plan.is_writer_alive


def test_a_dry_run_writes_nothing_and_says_what_to_do(node, capsys):
    before = handmade.dump(node.pins, "c2c_control")
    code, made = ask(capsys, "sweep", "--dry-run", *node.place)
    assert (code, made["kind"], made["dryRun"]) == (1, "Sweep", True)
    assert listed(made) == {
        ("cgroups", node.gone_id): ["cgroup-gone"],
        ("cells", 2): ["unused"],
    }
    assert made["writer"]["alive"] is False
    assert handmade.dump(node.pins, "c2c_control") == before
    assert node.ids() == {node.kept_id, node.gone_id}
    assert main(["sweep", "--dry-run", *node.place]) == 1
    text = capsys.readouterr().out
    assert "2 rows without provenance" in text
    assert "`nri-claim2core sweep`" in text
    assert text.endswith("Nothing was written.\n")


def test_it_deletes_exactly_what_was_listed_after_the_plugin_has_ended(node, capsys):
    code, made = ask(capsys, "sweep", *node.place)
    assert code == 0
    assert {(row["map"], row["key"], row["outcome"]) for row in made["rows"]} == {
        ("cgroups", node.gone_id, "deleted"),
        ("cells", 2, "deleted"),
    }
    assert node.ids() == {node.kept_id}
    assert node.live_cells() == [0, 1]
    [control] = [row["value"] for row in handmade.dump(node.pins, "c2c_control")]
    assert control["writer_tgid"] == os.getpid()


def test_nothing_to_delete_takes_no_token(node, capsys):
    command = [sys.executable, "-m", "nri_claim2core.cli.main", "sweep", *node.place]
    subprocess.run(command, check=True, capture_output=True)
    before = handmade.dump(node.pins, "c2c_control")
    assert main(["sweep", *node.place]) == 0
    assert "No row is void; 3 stay." in capsys.readouterr().out
    assert handmade.dump(node.pins, "c2c_control") == before


def test_beside_the_writer_it_refuses(writer, cgroup, pins, tmp_path, capsys):
    gone = cgroup / "gone"
    gone.mkdir()
    number = gone.stat().st_ino
    writer.put(requests.put_cell(1, CpuSet([0])), cgroup_row(gone))
    gone.rmdir()
    place = ["--pin-dir", pins, "--run-dir", str(tmp_path / "run")]
    place += ["--set", f"metrics.listen=unix:{tmp_path}/none.sock"]
    assert main(["sweep", *place]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"process {os.getpid()} writes these maps" in printed.err
    assert "the plugin deletes such rows itself" in printed.err
    assert "code: C2C-SWEEP-01" in printed.err
    assert [row["key"] for row in handmade.dump(pins, "c2c_cgroups")] == [number]
    # It is the writer still.
    writer.put(requests.delete_cgroup(number))


def test_beside_a_plugin_that_is_starting_it_refuses(node, capsys):
    with InstanceLock(node.run_dir):
        assert main(["sweep", *node.place]) == 3
    assert "code: C2C-PLUGIN-01" in capsys.readouterr().err
    assert node.ids() == {node.kept_id, node.gone_id}


def test_beside_a_plugin_that_answers_it_refuses_and_lists_by_its_ledger(node, tmp_path, capsys):
    # The plugin knows the row whose cgroup is gone, and not the one that looks right.
    row = {"map": "c2c_cgroups", "key": node.gone_id, "containerId": "c1"}
    page = {"apiVersion": "claim2core.gthulhu.io/v1alpha1", "kind": "Ledger", "rows": [row]}
    address = ListenAddress.parse(f"unix:{tmp_path}/http.sock")
    server = HttpServer(address, {"/ledger": lambda _: Response(json.dumps(page).encode())})
    server.start()
    place = [*node.place[:-1], f"metrics.listen={address}"]
    try:
        code, made = ask(capsys, "sweep", "--dry-run", *place)
        acting = main(["sweep", *place])
    finally:
        server.close()
    assert (code, made["plugin"]["answered"]) == (1, True)
    assert listed(made)["cgroups", node.kept_id] == ["not-in-ledger"]
    assert ("cgroups", node.gone_id) not in listed(made)
    assert acting == 3
    assert "code: C2C-SWEEP-01" in capsys.readouterr().err
    assert node.ids() == {node.kept_id, node.gone_id}


def test_a_row_that_the_ledger_has_on_the_second_look_is_not_listed(node):
    known = Provenance(map="cgroups", key=node.kept_id)
    pages = [
        LedgerPage(address="a", rows={}),
        LedgerPage(address="a", rows={("cgroups", node.kept_id): known}),
    ]
    plan = manual_sweep.plan_sweep(node.pins, lambda: pages.pop(0))
    assert {(row.map, row.key) for row in plan.rows} == {("cgroups", node.gone_id), ("cells", 2)}
    # Cell 0, cell 1 and the row that is known by now.
    assert plan.nr_kept == 3


def test_a_row_unknown_at_the_second_look_only_is_not_listed(node):
    known = Provenance(map="cgroups", key=node.kept_id)
    pages = [
        LedgerPage(address="a", rows={("cgroups", node.kept_id): known}),
        LedgerPage(address="a", rows={}),
    ]
    plan = manual_sweep.plan_sweep(node.pins, lambda: pages.pop(0))
    assert ("cgroups", node.kept_id) not in {(row.map, row.key) for row in plan.rows}
    assert pages == []


def test_a_row_of_another_generation_than_the_ledgers_is_listed(node):
    known = Provenance(map="cgroups", key=node.kept_id, generation=1)
    page = LedgerPage(address="a", rows={("cgroups", node.kept_id): known})
    plan = manual_sweep.plan_sweep(node.pins, lambda: page)
    found = {row.key: [fault.value for fault in row.faults] for row in plan.rows}
    assert found[node.kept_id] == ["other-in-ledger"]


def test_a_row_written_again_meanwhile_stays(node):
    plan = manual_sweep.plan_sweep(node.pins, lambda: NO_PLUGIN)
    # As if a plugin had come back in between.
    programs = load(node.pins)
    writer = Writer(programs)
    writer.take()
    writer.put(requests.delete_cgroup(node.gone_id), requests.put_cell(3, CpuSet([3])))
    writer.close()
    programs.close()
    changed = [
        manual_sweep.Listed(
            map="cgroups",
            key=node.kept_id,
            generation=1,
            faults=(manual_sweep.Fault.CGROUP_GONE,),
            row=CgroupRow(cgroup_id=node.kept_id, policy=Policy(cell=1, generation=1)),
        )
    ]
    stale = manual_sweep.Plan(
        rows=(*plan.rows, *changed),
        nr_kept=0,
        control=plan.control,
        is_writer_alive=False,
        ledger=NO_PLUGIN,
    )
    done = manual_sweep._delete(node.pins, stale)
    assert {(row.map, row.key): row.outcome for row in done.rows} == {
        ("cgroups", node.gone_id): "changed since it was listed",
        ("cgroups", node.kept_id): "changed since it was listed",
        ("cells", 2): "deleted",
    }
    assert node.ids() == {node.kept_id}
    assert node.live_cells() == [0, 1, 3]


def test_a_row_planted_by_hand_is_listed_and_deleted(cgroup, pins, bpffs, tmp_path, capsys):
    handmade.make_set(pins, abi=1)
    key = cgroup.stat().st_ino.to_bytes(8, sys.byteorder)
    handmade.write(pins, "c2c_cgroups", key, bytes(56) + key + bytes(8))
    place = ["--pin-dir", pins, "--run-dir", str(tmp_path / "run")]
    place += ["--set", f"metrics.listen=unix:{tmp_path}/none.sock"]
    code, made = ask(capsys, "sweep", *place)
    assert code == 0
    assert listed(made) == {("cgroups", cgroup.stat().st_ino): ["foreign"]}
    # A map without BTF: bpftool gives bytes.
    assert handmade.bpftool("map", "dump", "pinned", f"{pins}/c2c_cgroups") == []
