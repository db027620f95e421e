"""The spec directories: priority, conflicts, broken neighbors, and what a second read costs."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from pathlib import Path

import pytest

from nri_claim2core.host import cdi, files
from nri_claim2core.host.cdi import CdiReader
from tests.host.trees import CLAIM_A, CLAIM_B, Clock, Tree, dra_cpu_spec

NAME_A = f"dra.k8s.io/cpu=claim-{CLAIM_A}"
NAME_B = f"dra.k8s.io/cpu=claim-{CLAIM_B}"
FILE_A = f"/var/run/cdi/dra.k8s.io-cpu_claim-{CLAIM_A}.json"


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def reader(tree, clock):
    return CdiReader(tree.root, clock=clock)


@pytest.fixture
def opened(monkeypatch):
    """Names of the spec files that were opened since it was last cleared."""
    names: list[str] = []
    real = cdi.read_stable

    def counting(path, **options):
        names.append(Path(path).name)
        return real(path, **options)

    monkeypatch.setattr(cdi, "read_stable", counting)
    return names


def spec(name, env, kind="v.example/c"):
    return json.dumps(
        {
            "cdiVersion": "0.8.0",
            "kind": kind,
            "devices": [{"name": name, "containerEdits": {"env": [env]}}],
        }
    )


def test_devices_of_both_directories_with_paths_of_the_node(tree, reader):
    tree.claim_file(CLAIM_A, "0-3")
    tree.write("/etc/cdi/v.json", spec("d", "A=1"))
    snapshot = reader.read()
    assert {n: (d.path, d.env) for n, d in snapshot.devices.items()} == {
        NAME_A: (FILE_A, (f"DRA_CPUSET_{CLAIM_A}=0-3",)),
        "v.example/c=d": ("/etc/cdi/v.json", ("A=1",)),
    }
    assert (snapshot.problems, dict(snapshot.conflicts), snapshot.readable) == ((), {}, True)


def test_only_json_and_yaml_directly_in_the_directory(tree, reader):
    tree.write("/var/run/cdi/a.yaml", spec("yaml", "A=1"))
    for name in ("b.yml", "c.json.tmp", "spec.123.tmp", "json", "README"):
        tree.write(f"/var/run/cdi/{name}", spec(name, "A=1"))
    tree.write("/var/run/cdi/sub.json/d.json", spec("nested", "A=1"))
    snapshot = reader.read()
    assert list(snapshot.devices) == ["v.example/c=yaml"]
    assert snapshot.problems == ()


def test_the_later_directory_wins(tree, reader):
    tree.write("/etc/cdi/z.json", spec("d", "A=etc"))
    tree.write("/var/run/cdi/a.json", spec("d", "A=run"))
    snapshot = reader.read()
    assert snapshot.devices["v.example/c=d"].env == ("A=run",)
    assert snapshot.conflicts == {}


def test_one_name_in_two_files_of_a_directory_belongs_to_none(tree, reader):
    tree.write("/var/run/cdi/a.json", spec("d", "A=1"))
    tree.write("/var/run/cdi/b.yaml", spec("d", "A=1"))
    tree.write("/var/run/cdi/c.json", spec("d", "A=1"))
    tree.claim_file(CLAIM_A, "0-3")
    snapshot = reader.read()
    assert list(snapshot.devices) == [NAME_A]
    assert snapshot.conflicts == {
        "v.example/c=d": (
            "/var/run/cdi/a.json",
            "/var/run/cdi/b.yaml",
            "/var/run/cdi/c.json",
        )
    }


def test_a_conflict_below_is_not_healed_above(tree, reader):
    # As the runtimes' library resolves it: the name stays unresolvable.
    tree.write("/etc/cdi/a.json", spec("d", "A=1"))
    tree.write("/etc/cdi/b.json", spec("d", "A=2"))
    tree.write("/var/run/cdi/c.json", spec("d", "A=3"))
    snapshot = reader.read()
    assert snapshot.devices == {}
    assert snapshot.conflicts == {"v.example/c=d": ("/etc/cdi/a.json", "/etc/cdi/b.json")}


def test_conflicts_on_two_levels_name_all_their_files(tree, reader):
    paths = ("/etc/cdi/a.json", "/etc/cdi/b.json", "/var/run/cdi/c.json", "/var/run/cdi/d.json")
    for path in paths:
        tree.write(path, spec("d", "A=1"))
    assert reader.read().conflicts == {"v.example/c=d": paths}


def test_a_file_below_hidden_by_one_above_is_no_conflict_with_its_peers(tree, reader):
    tree.write("/etc/cdi/a.json", spec("d", "A=1"))
    tree.write("/etc/cdi/b.json", spec("e", "A=2"))
    tree.write("/var/run/cdi/c.json", spec("d", "A=3"))
    assert {n: d.env for n, d in reader.read().devices.items()} == {
        "v.example/c=d": ("A=3",),
        "v.example/c=e": ("A=2",),
    }


def test_a_conflict_ends_with_its_cause(tree, reader):
    tree.write("/var/run/cdi/a.json", spec("d", "A=1"))
    other = tree.write("/var/run/cdi/b.json", spec("d", "A=1"))
    assert reader.read().conflicts
    other.unlink()
    snapshot = reader.read()
    assert list(snapshot.devices) == ["v.example/c=d"]
    assert snapshot.conflicts == {}


# Broken neighbors: the claim's own file stays usable, the problem names the other.


def fifo(path):
    os.mkfifo(path)


def unix_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def dangling(path):
    path.symlink_to("nowhere.json")


def loop(path):
    path.symlink_to(path.name)


def to_directory(path):
    path.with_name("elsewhere").mkdir()
    path.symlink_to("elsewhere")


def huge(path):
    with path.open("wb") as made:
        made.truncate(cdi.MAX_SPEC_BYTES + 1)


def text(content):
    return lambda path: path.write_bytes(content)


BROKEN = {
    "fifo": (fifo, "is a FIFO"),
    "socket": (unix_socket, "is a socket"),
    "dangling link": (dangling, "link to a file that is not there"),
    "link loop": (loop, "[Ll]evels of symbolic links|too many symbolic"),
    "huge": (huge, f"longer than {cdi.MAX_SPEC_BYTES} bytes"),
    "empty": (text(b""), "is empty"),
    "half written": (text(spec("d", "A=1").encode()[:40]), "not JSON"),
    "not UTF-8": (text(b'{"kind": "\xe9"}'), "not UTF-8"),
    "wrong version": (text(spec("d", "A=1").replace("0.8.0", "9.0.0").encode()), "9.0.0"),
    "a list": (text(b"[]"), "not a mapping"),
    "deep": (text(b"[" * 100_000), "nested too deeply"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_costs_only_itself(tree, reader, case):
    make, rule = BROKEN[case]
    tree.claim_file(CLAIM_A, "0-3")
    make(tree.path("/var/run/cdi/broken.json"))
    for _ in range(2):
        snapshot = reader.read()
        assert list(snapshot.devices) == [NAME_A]
        (problem,) = snapshot.problems
        assert problem.path == "/var/run/cdi/broken.json"
        assert re.search(rule, problem.reason)
        assert tree.root not in problem.reason


def test_a_link_to_a_directory_is_skipped(tree, reader):
    tree.claim_file(CLAIM_A, "0-3")
    to_directory(tree.path("/var/run/cdi/broken.json"))
    assert reader.read().problems == ()


def test_a_link_to_a_device_is_named(tmp_path, clock):
    tree = Tree(tmp_path)
    tree.directory("/cdi")
    tree.path("/cdi/broken.json").symlink_to("/dev/null")
    snapshot = CdiReader("/", (f"{tree.root}/cdi",), clock=clock).read()
    assert "character device" in snapshot.problems[0].reason


def test_a_fifo_is_not_even_opened(tree, reader, monkeypatch):
    tree.directory("/var/run/cdi")
    os.mkfifo(tree.path("/var/run/cdi/broken.json"))
    monkeypatch.setattr(files.os, "open", lambda *_: pytest.fail("opened"))
    assert "is a FIFO" in reader.read().problems[0].reason


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads files of mode 0")
def test_an_unreadable_file_says_permission(tree, reader):
    tree.claim_file(CLAIM_A, "0-3").chmod(0)
    assert "Permission denied" in reader.read().problems[0].reason


def test_a_mended_file_is_used_and_a_broken_one_is_dropped(tree, reader):
    path = tree.write(FILE_A, "{")
    assert reader.read().problems
    path.write_text(json.dumps(dra_cpu_spec((CLAIM_A, "1"))))
    snapshot = reader.read()
    assert (list(snapshot.devices), snapshot.problems) == ([NAME_A], ())
    path.write_text("{")
    snapshot = reader.read()
    assert (dict(snapshot.devices), len(snapshot.problems)) == ({}, 1)


def test_too_many_files_is_a_problem_of_the_directory(tree, reader, monkeypatch):
    monkeypatch.setattr(cdi, "MAX_SPEC_FILES", 3)
    for number in range(3):
        tree.write(f"/var/run/cdi/{number}.json", spec(f"d{number}", "A=1"))
    assert reader.read().problems == ()
    tree.write("/var/run/cdi/3.json", spec("d3", "A=1"))
    snapshot = reader.read()
    assert len(snapshot.devices) == 3
    assert [(p.path, "more than 3" in p.reason) for p in snapshot.problems] == [
        ("/var/run/cdi", True)
    ]


# Directories that are not there, and links between them.


def test_no_directory_at_all_is_not_an_empty_one(tree, reader):
    snapshot = reader.read()
    assert (snapshot.readable, snapshot.problems) == (False, ())
    tree.directory("/etc/cdi")
    assert reader.read().readable is True


def test_a_directory_that_vanishes_takes_its_devices(tree, reader):
    path = tree.claim_file(CLAIM_A, "0-3")
    assert reader.read().readable
    path.unlink()
    path.parent.rmdir()
    snapshot = reader.read()
    assert (snapshot.readable, dict(snapshot.devices)) == (False, {})


def test_a_file_in_place_of_a_directory_is_named(tree, reader):
    tree.write("/etc/cdi", "x")
    tree.claim_file(CLAIM_A, "0-3")
    snapshot = reader.read()
    assert list(snapshot.devices) == [NAME_A]
    assert [(p.path, p.reason) for p in snapshot.problems] == [("/etc/cdi", "Not a directory")]


def test_links_are_resolved_inside_the_root(tree, clock):
    # /var/run -> /run is how distributions have it; /run of *this* machine must not be read.
    tree.claim_file(CLAIM_A, "0-3", "/run/cdi")
    tree.path("/var").mkdir()
    tree.path("/var/run").symlink_to("/run")
    tree.write("/opt/spec.json", spec("linked", "A=1"))
    tree.path("/run/cdi/link.json").symlink_to("/opt/spec.json")
    tree.path("/run/cdi/outside.json").symlink_to("../../../../../../../opt/spec.json")
    snapshot = CdiReader(tree.root, clock=clock).read()
    assert NAME_A in snapshot.devices
    assert set(snapshot.conflicts) == {"v.example/c=linked"}


# What a second read costs, and when it must not be saved.


def test_an_unchanged_directory_opens_nothing_and_gives_the_same_object(tree, reader, opened):
    for number in range(20):
        tree.write(f"/var/run/cdi/{number}.json", spec(f"d{number}", "A=1"))
    first = reader.read()
    assert len(opened) == 20
    opened.clear()
    assert reader.read() is first
    assert opened == []


def test_only_what_changed_is_read_again(tree, reader, opened):
    tree.claim_file(CLAIM_A, "0-3")
    tree.write("/var/run/cdi/other.json", spec("d", "A=1"))
    reader.read()
    opened.clear()
    tree.claim_file(CLAIM_B, "4-5")
    assert set(reader.read().devices) == {NAME_A, NAME_B, "v.example/c=d"}
    assert opened == [f"dra.k8s.io-cpu_claim-{CLAIM_B}.json"]


def test_another_fault_of_a_broken_file_is_told(tree, reader):
    path = tree.write(FILE_A, "")
    assert reader.read().problems[0].reason == "is empty"
    path.write_text("[]")
    assert "not a mapping" in reader.read().problems[0].reason


def test_a_file_under_another_name_is_another_file(tree, reader):
    path = tree.claim_file(CLAIM_A, "0-3")
    reader.read()
    path.rename(path.with_name("other.json"))
    assert reader.read().devices[NAME_A].path == "/var/run/cdi/other.json"


def test_a_file_replaced_by_rename_is_read_again(tree, reader):
    path = tree.claim_file(CLAIM_A, "0-3")
    reader.read()
    fresh = path.with_suffix(".tmp")
    fresh.write_text(path.read_text().replace("0-3", "4-7"))
    os.utime(fresh, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    fresh.rename(path)
    assert reader.read().devices[NAME_A].env == (f"DRA_CPUSET_{CLAIM_A}=4-7",)


def test_a_rewrite_that_leaves_no_trace_in_the_stamp_is_seen(tree, clock, monkeypatch):
    # Same size, same inode, same tick of the kernel's clock: only distrust of the young helps.
    path = tree.claim_file(CLAIM_A, "0-3")
    frozen = files.stamp_of(path.stat())
    for module in (cdi, files):
        monkeypatch.setattr(module, "stamp_of", lambda _: frozen)
    clock.now = path.stat().st_ctime_ns + files.SETTLE_NS - 1
    reader = CdiReader(tree.root, clock=clock)
    first = reader.read()
    assert reader.read() is first
    path.write_text(path.read_text().replace("0-3", "4-7"))
    assert reader.read().devices[NAME_A].env == (f"DRA_CPUSET_{CLAIM_A}=4-7",)


def test_a_file_that_changes_while_it_is_read_is_read_again(tree, reader, monkeypatch):
    path = tree.claim_file(CLAIM_A, "0-3")
    real, changes = files._read_all, ["6-7\n", "4-5"]

    def changing(fd, limit):
        data = real(fd, limit)
        if changes:
            path.write_text(json.dumps(dra_cpu_spec((CLAIM_A, changes.pop()))) + " " * len(changes))
        return data

    monkeypatch.setattr(files, "_read_all", changing)
    snapshot = reader.read()
    assert snapshot.devices[NAME_A].env == (f"DRA_CPUSET_{CLAIM_A}=6-7\n",)


def test_a_file_that_never_rests_is_a_problem(tree, reader, monkeypatch):
    tree.write("/var/run/cdi/other.json", spec("d", "A=1"))
    path = tree.claim_file(CLAIM_A, "0-3")
    real, reads = files._read_all, []

    def growing(fd, limit):
        data = real(fd, limit)
        if b"DRA_CPUSET" in data:
            reads.append(len(data))
            with path.open("a") as made:
                made.write(" ")
        return data

    monkeypatch.setattr(files, "_read_all", growing)
    snapshot = reader.read()
    assert list(snapshot.devices) == ["v.example/c=d"]
    assert "changed during each of 3 reads" in snapshot.problems[0].reason
    assert len(reads) == 3


def test_a_file_removed_between_listing_and_reading_was_never_there(tree, reader, monkeypatch):
    tree.write("/var/run/cdi/other.json", spec("d", "A=1"))
    path = tree.claim_file(CLAIM_A, "0-3")
    real = cdi.read_stable

    def removing(opened, **options):
        if opened == str(path):
            path.unlink()
        return real(opened, **options)

    monkeypatch.setattr(cdi, "read_stable", removing)
    snapshot = reader.read()
    assert (list(snapshot.devices), snapshot.problems) == (["v.example/c=d"], ())


def test_a_stuck_reader_neither_blocks_nor_spoils_the_others(tree, reader, monkeypatch):
    path = tree.claim_file(CLAIM_A, "0-3")
    real = cdi.read_stable
    stuck, release = threading.Event(), threading.Event()

    def slow(opened, **options):
        content = real(opened, **options)
        if threading.current_thread().name == "stuck":
            stuck.set()
            assert release.wait(20)
        return content

    monkeypatch.setattr(cdi, "read_stable", slow)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(reader.read()), name="stuck")
    thread.start()
    assert stuck.wait(20)
    path.write_text(json.dumps(dra_cpu_spec((CLAIM_A, "4-5"))))
    tree.claim_file(CLAIM_B, "6-7")
    new = {NAME_A: (f"DRA_CPUSET_{CLAIM_A}=4-5",), NAME_B: (f"DRA_CPUSET_{CLAIM_B}=6-7",)}
    assert {n: d.env for n, d in reader.read().devices.items()} == new
    release.set()
    thread.join(20)
    assert seen[0].devices[NAME_A].env == (f"DRA_CPUSET_{CLAIM_A}=0-3",)
    # The old state was stored last; the next read must not believe it.
    assert {n: d.env for n, d in reader.read().devices.items()} == new
