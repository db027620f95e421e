"""The seeder on real maps, with real processes in real cgroups of this machine.

What is in force is the kernel side's word (`resolve`), not the ledger's.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nri_claim2core.agent.book import Entry
from nri_claim2core.agent.config import SchedulingOptions, ViolationEffect
from nri_claim2core.agent.ledger import DONE, ledger_document
from nri_claim2core.agent.ledger_page import parse_ledger
from nri_claim2core.agent.metrics import Metrics
from nri_claim2core.agent.seeder import Seeder
from nri_claim2core.agent.seeding import Seeding
from nri_claim2core.bpfmap import requests
from nri_claim2core.bpfmap.abi import ExecClass, Source
from nri_claim2core.bpfmap.errors import PinGoneError, StaleWriterError, TaskGoneError
from nri_claim2core.bpfmap.loader import load
from nri_claim2core.bpfmap.pins import open_maps
from nri_claim2core.bpfmap.readback import read_cells, read_cgroups, read_tasks, resolve
from nri_claim2core.bpfmap.rows import CgroupRow, Policy
from nri_claim2core.claims.codes_table import finding
from nri_claim2core.model.claim import ClaimLink, Links, Verdict
from nri_claim2core.model.cpuset import CpuSet
from nri_claim2core.model.envelope import Envelope, Ownership
from nri_claim2core.model.errors import HostError
from nri_claim2core.model.records import ContainerRecord, ContainerState, PodRecord
from nri_claim2core.nri import Call, RpcError
from nri_claim2core.nri.call import Cancelled
from tests.bpfmap.tasks import Child

pytestmark = pytest.mark.maps

CLAIM = "8d2b7a4e-5c1f-4f0b-9a34-7e6d0c1b2a93"


def entry_of(place, tid, *, name="main", cpus=(0,), findings=(), verdict=Verdict.VERIFIED):
    cpus = CpuSet(cpus)
    return Entry(
        pod=PodRecord(sandbox_id="s", uid="u", namespace="ns", name="pod"),
        container=ContainerRecord(
            id=f"id-{name}",
            sandbox_id="s",
            name=name,
            state=ContainerState.CREATED,
            cgroups_path=f"/{place.name}",
            pid=tid,
        ),
        links=Links(links=(ClaimLink(claim_uid=CLAIM, verdict=verdict, cpus=cpus),)),
        envelope=Envelope(
            ownership=Ownership.OWN, cpus=cpus, mems=CpuSet(), findings=tuple(findings)
        ),
    )


def call():
    return Call("StartContainer", None, 0.0, 1.0)


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def seeder(pins, metrics):
    made = Seeder(pins, ExecClass.LATENCY_CRITICAL, metrics)
    yield made
    made.close()


@pytest.fixture
def maps(pins, seeder):
    opened = open_maps(pins, read_only=True)
    yield opened
    opened.close()


@pytest.fixture
def kernel(pins, seeder):
    """Asks the kernel side what governs a thread."""
    loaded = load(pins)
    yield lambda tid: resolve(loaded, tid)
    loaded.close()


def test_a_seed_governs_init_its_threads_and_what_comes_later(seeder, cgroup, child, kernel, maps):
    seeder.seed(entry_of(cgroup, child.tid, cpus=[0, 3]), call())
    view = kernel(child.tid)
    assert (view.source, view.policy.exec_class) == (Source.TASK, ExecClass.LATENCY_CRITICAL)
    later = kernel(child.start_thread())
    assert (later.source, later.policy.exec_class) == (Source.CGROUP, ExecClass.LATENCY_CRITICAL)
    assert later.governing_cgroup_id == cgroup.stat().st_ino
    [cell] = [each for each in read_cells(maps) if each.index == view.policy.cell]
    assert str(cell.cpus) == "0,3"


def test_every_row_is_explained(seeder, cgroup, child, maps):
    seeder.seed(entry_of(cgroup, child.tid), call())
    rows = {row.at: row for row in seeder.ledger.rows()}
    [by_cgroup], [by_task] = read_cgroups(maps), read_tasks(maps)
    assert {key: row.generation for key, row in rows.items()} == {
        ("c2c_cgroups", cgroup.stat().st_ino): by_cgroup.policy.generation,
        ("c2c_tasks", child.tid): by_task.policy.generation,
    }
    assert {row.state for row in rows.values()} == {DONE}
    # As the tools read it.
    document = str(ledger_document(seeder.ledger)).replace("'", '"').encode()
    page = parse_ledger(document)
    provenance = page.maybe_row("cgroups", cgroup.stat().st_ino)
    assert (provenance.pod, provenance.container, provenance.claims) == (
        "ns/pod",
        "main",
        (CLAIM,),
    )
    assert seeder.inspect_rows() == 0


def test_a_release_leaves_nothing_and_frees_the_cell(seeder, cgroup, child, kernel, maps):
    seeder.seed(entry_of(cgroup, child.tid), call())
    seeder.release("id-main")
    assert (read_cgroups(maps), read_tasks(maps), seeder.ledger.rows()) == ([], [], [])
    assert kernel(child.tid).source is Source.NONE
    seeder.inspect_rows()
    assert [cell.index for cell in read_cells(maps)] == [0]
    # A second time, and for one never seen.
    seeder.release("id-main")
    seeder.release("nobody")


def test_containers_of_one_envelope_share_a_cell(seeder, cgroup, child, maps):
    inner = cgroup / "other"
    inner.mkdir()
    with Child() as second:
        second.enter(inner)
        seeder.seed(entry_of(cgroup, child.tid), call())
        seeder.seed(entry_of(inner, second.tid, name="other"), call())
        assert {row.policy.cell for row in read_cgroups(maps)} == {1}
        seeder.release("id-main")
        seeder.inspect_rows()
        assert [cell.index for cell in read_cells(maps)] == [0, 1]


def test_what_cannot_be_seeded_leaves_no_trace(seeder, cgroup, child, maps):
    # Another cgroup than the one that was announced; a thread that has ended.
    with pytest.raises(HostError) as refused:
        seeder.seed(entry_of(cgroup / "elsewhere", child.tid), call())
    assert refused.value.code == "C2C-HOST-06"
    child.end()
    with pytest.raises((HostError, TaskGoneError)):
        seeder.seed(entry_of(cgroup, child.tid), call())
    assert (read_cgroups(maps), seeder.ledger.rows()) == ([], [])


def test_a_call_that_was_answered_meanwhile_writes_nothing(seeder, cgroup, child, maps):
    late = call()
    late.cancelled = True
    with pytest.raises(Cancelled):
        seeder.seed(entry_of(cgroup, child.tid), late)
    assert (read_cgroups(maps), read_tasks(maps), seeder.ledger.rows()) == ([], [], [])


@pytest.mark.parametrize("step", ["intend", "apply", "done"])
def test_a_crash_at_any_step_is_made_good_by_the_next_start(
    *, step, seeder, pins, cgroup, child, maps, metrics, monkeypatch
):
    class Killed(BaseException):
        """No handler of ours runs any more."""

    def die(*_args, **_kwargs):
        raise Killed

    where = {"intend": seeder.ledger, "apply": seeder._writer, "done": seeder.ledger}[step]
    monkeypatch.setattr(type(where), step, die)
    monkeypatch.setattr(Seeder, "_take_back", lambda *_: None)
    with pytest.raises(Killed):
        seeder.seed(entry_of(cgroup, child.tid), call())
    monkeypatch.undo()
    again = Seeder(pins, ExecClass.BACKGROUND, metrics)
    try:
        again.settle([])
        assert (read_cgroups(maps), read_tasks(maps)) == ([], [])
        again.seed(entry_of(cgroup, child.tid), call())
        assert [row.policy.exec_class for row in read_cgroups(maps)] == [ExecClass.BACKGROUND]
    finally:
        again.close()


def test_a_restart_reconstructs_what_runs_and_ends_the_rest(
    *, seeder, pins, cgroup, child, maps, metrics
):
    inner = cgroup / "gone"
    inner.mkdir()
    with Child() as other:
        other.enter(inner)
        seeder.seed(entry_of(cgroup, child.tid), call())
        seeder.seed(entry_of(inner, other.tid, name="gone", cpus=[1]), call())
        again = Seeder(pins, ExecClass.LATENCY_CRITICAL, metrics)
        try:
            before = {row.cgroup_id: row.policy.generation for row in read_cgroups(maps)}
            assert len(before) == 2  # in force until the new ones are there
            again.settle([entry_of(cgroup, child.tid)])
            [row] = read_cgroups(maps)
            assert row.cgroup_id == cgroup.stat().st_ino
            assert row.policy.generation > max(before.values())
            assert [task.tid for task in read_tasks(maps)] == [child.tid]
            assert maps.read_control().floor > max(before.values())
            # INV-ROLLBACK: the old writer can bring nothing back.
            with pytest.raises(StaleWriterError):
                seeder.seed(entry_of(inner, other.tid, name="gone", cpus=[1]), call())
            again.inspect_rows()
            assert [str(cell.cpus) for cell in read_cells(maps) if cell.index] == ["0"]
        finally:
            again.close()


def test_a_row_that_nobody_meant_is_swept_on_the_second_pass(seeder, cgroup, child, maps, metrics):
    seeder.seed(entry_of(cgroup, child.tid), call())
    inner = cgroup / "planted"
    inner.mkdir()
    number = inner.stat().st_ino
    seeder._writer.put(requests.put_cgroup(CgroupRow(cgroup_id=number, policy=Policy())))
    assert seeder.inspect_rows() == 1
    assert len(read_cgroups(maps)) == 2
    assert metrics.value("claim2core_map_entries", "unexplained") == 1
    assert seeder.inspect_rows() == 1
    assert [row.cgroup_id for row in read_cgroups(maps)] == [cgroup.stat().st_ino]
    assert metrics.value("claim2core_sweep_removed_total") == 1
    assert seeder.inspect_rows() == 0


# -- switched on and off, available or not


def seeding_of(pins, metrics, effect=ViolationEffect.REPORT):
    options = SchedulingOptions(enabled=True, pin_directory=pins, on_seed_failure=effect)
    return Seeding(options, metrics)


def test_maps_that_were_removed_are_made_and_filled_again(pins, bpffs, cgroup, child, metrics):
    seeding = seeding_of(pins, metrics)
    running = entry_of(cgroup, child.tid)
    seeding.open()
    seeding.seed(running, call())
    for pin in Path(pins).iterdir():
        pin.unlink()
    seeding.poll([running])
    assert metrics.value("claim2core_seeding_available") == 0
    seeding.poll([running])
    assert metrics.value("claim2core_seeding_available") == 1
    maps = open_maps(pins, read_only=True)
    assert [row.cgroup_id for row in read_cgroups(maps)] == [cgroup.stat().st_ino]
    maps.close()
    seeding.close()


def test_a_lost_pin_has_a_name(seeder, pins):
    (Path(pins) / "c2c_tasks").unlink()
    with pytest.raises(PinGoneError):
        seeder.inspect_rows()


def test_who_lost_the_token_stops_and_takes_it_from_nobody(
    *, pins, bpffs, cgroup, child, metrics, caplog
):
    seeding = seeding_of(pins, metrics)
    seeding.open()
    other = Seeder(pins, ExecClass.DEFAULT, Metrics())
    seeding.seed(entry_of(cgroup, child.tid), call())
    assert metrics.value("claim2core_seeds_total", "failed") == 1
    maps = open_maps(pins, read_only=True)
    for _ in range(3):
        seeding.poll([entry_of(cgroup, child.tid)])
    assert maps.read_control().token == other.token
    maps.close()
    other.close()
    seeding.close()


def test_a_set_with_a_part_missing_is_made_anew(seeder, pins, metrics):
    (Path(pins) / "c2c_tasks").unlink()
    again = Seeder(pins, ExecClass.DEFAULT, metrics)
    again.inspect_rows()
    again.close()


def test_maps_of_another_abi_are_left_alone(seeder, pins, metrics, caplog, monkeypatch):
    before = {pin.name: pin.stat().st_ino for pin in Path(pins).iterdir()}
    monkeypatch.setattr("nri_claim2core.bpfmap.pins.ABI", 2)
    other = seeding_of(pins, metrics)
    other.open()
    assert [record.code for record in caplog.records] == ["C2C-BPF-02"]
    assert {pin.name: pin.stat().st_ino for pin in Path(pins).iterdir()} == before


def test_a_cell_that_another_hand_wrote_makes_seeding_unavailable_and_nothing_else(
    pins, bpffs, metrics, caplog, monkeypatch
):
    def broken(_maps):
        raise ValueError("7 is not a valid CellState")

    monkeypatch.setattr("nri_claim2core.agent.seeder.read_cells", broken)
    seeding = seeding_of(pins, metrics)
    seeding.open()
    seeding.preflight()
    assert [record.code for record in caplog.records] == ["C2C-SEED-03"]
    seeding.close()


def test_without_maps_containers_start_or_are_refused_as_configured(tmp_path, metrics, caplog):
    running = entry_of(tmp_path, 1)
    lenient = seeding_of(str(tmp_path / "no-bpffs"), metrics)
    for _ in range(3):
        lenient.open()
        lenient.preflight()
        lenient.seed(running, call())
        lenient.release(["id-main"])
        lenient.poll([running])
    assert metrics.value("claim2core_seeds_total", "unavailable") == 3
    said = [record for record in caplog.records if record.message == "seeding unavailable"]
    assert [record.code for record in said] == ["C2C-BPF-05"]
    strict = seeding_of(str(tmp_path / "no-bpffs"), metrics, ViolationEffect.REJECT)
    strict.open()
    with pytest.raises(RpcError, match="not on a BPF file system"):
        strict.preflight()
    with pytest.raises(RpcError, match="start refused"):
        strict.seed(running, call())


@pytest.mark.parametrize(
    "entry_change",
    [{"verdict": Verdict.UNVERIFIED}, {"findings": [finding("C2C-ENV-15", "also those of B")]}],
    ids=["unproven", "double-booked"],
)
def test_who_has_no_policy_gets_no_row(*, entry_change, pins, bpffs, cgroup, child, metrics):
    seeding = seeding_of(pins, metrics)
    seeding.open()
    seeding.seed(entry_of(cgroup, child.tid, **entry_change), call())
    maps = open_maps(pins, read_only=True)
    assert read_cgroups(maps) == []
    maps.close()
    seeding.close()


def test_switched_off_nothing_of_bpf_is_loaded():
    code = (
        "import sys; import nri_claim2core.agent.role; "
        "print([name for name in sys.modules if 'bpfmap' in name or name == 'ctypes'])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    assert done.stdout.strip() == b"[]"
