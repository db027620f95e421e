"""The pinned set: adopted, refused, found gone or replaced - each with its name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nri_claim2core.bpfmap import loader, readback, syscall
from nri_claim2core.bpfmap.abi import ABI, MAPS
from nri_claim2core.bpfmap.errors import (
    BpffsError,
    CapabilityError,
    LoadError,
    MapsMissingError,
    OtherAbiError,
    PinGoneError,
    PinReplacedError,
)
from nri_claim2core.bpfmap.loader import load
from nri_claim2core.bpfmap.pins import check_bpffs, open_maps, remove_pins
from tests.bpfmap.need import need_bpftool
from tests.bpfmap.seeds import seed_cgroup

NAMES = [spec.name for spec in MAPS]


@pytest.mark.maps
def test_a_set_outlives_its_maker_and_is_adopted(loaded, writer, pins, cgroup):
    assert loaded.fresh
    writer.put(seed_cgroup(cgroup))
    rows = readback.read_cgroups(loaded.maps)
    identity = loaded.maps.identity
    loaded.close()
    again = load(pins, sizes={"c2c_tasks": 7})
    assert not again.fresh
    assert again.maps.identity == identity
    assert readback.read_cgroups(again.maps) == rows
    # Sizes are for a set that is made.
    assert again.maps.infos["c2c_tasks"].max_entries == 65536
    again.maps.check_pins()
    again.close()


@pytest.mark.maps
def test_bpftool_sees_the_set_as_made(loaded, pins):
    done = subprocess.run(
        [need_bpftool(), "-j", "map", "show"], check=True, capture_output=True, text=True
    )
    shown = {each["id"]: each for each in json.loads(done.stdout)}
    for name, info in loaded.maps.infos.items():
        seen = shown[info.id]
        assert (seen["name"], seen["bytes_key"], seen["bytes_value"], seen["max_entries"]) == (
            name,
            info.key_size,
            info.value_size,
            info.max_entries,
        )
        assert seen["frozen"] == 1
    assert sorted(path.name for path in Path(pins).iterdir()) == sorted(NAMES)


@pytest.mark.maps
def test_without_a_set_it_is_missing(bpffs, pins):
    with pytest.raises(MapsMissingError):
        open_maps(pins)
    Path(pins).mkdir()
    with pytest.raises(MapsMissingError):
        open_maps(pins)


@pytest.mark.maps
@pytest.mark.parametrize("name", NAMES)
def test_a_removed_pin_is_noticed(loaded, pins, name):
    (Path(pins) / name).unlink()
    with pytest.raises(PinGoneError, match=name):
        loaded.maps.check_pins()
    # Without its control map there is no set any more; otherwise it is broken.
    with pytest.raises(MapsMissingError if name == "c2c_control" else PinGoneError):
        open_maps(pins)


@pytest.mark.maps
def test_a_broken_set_is_replaced_only_when_told(loaded, pins):
    (Path(pins) / "c2c_tasks").unlink()
    with pytest.raises(PinGoneError):
        load(pins)
    fresh = load(pins, replace=True)
    assert fresh.fresh
    assert not set(fresh.maps.identity) & set(loaded.maps.identity)
    with pytest.raises(PinReplacedError):
        loaded.maps.check_pins()
    fresh.close()


@pytest.mark.maps
def test_what_a_dead_maker_left_behind_is_cleared(loaded, pins):
    # It died before it pinned the control map: nobody has used the rest.
    (Path(pins) / "c2c_control").unlink()
    fresh = load(pins)
    assert fresh.fresh
    assert not set(fresh.maps.identity) & set(loaded.maps.identity)
    fresh.close()


@pytest.mark.maps
def test_a_replaced_pin_is_noticed(loaded, pins):
    remove_pins(pins)
    other = load(pins)
    with pytest.raises(PinReplacedError, match="c2c_"):
        loaded.maps.check_pins()
    other.maps.check_pins()
    other.close()


@pytest.mark.maps
def test_a_map_of_another_shape_is_another_abi(loaded, pins):
    path = Path(pins) / "c2c_tasks"
    path.unlink()
    words = ["type", "hash", "key", "4", "value", "88", "entries", "8", "name", "c2c_tasks"]
    subprocess.run([need_bpftool(), "map", "create", str(path), *words], check=True)
    for attempt in (open_maps, load):
        with pytest.raises(OtherAbiError, match="88"):
            attempt(pins)
    with pytest.raises(PinReplacedError):
        loaded.maps.check_pins()


@pytest.mark.maps
def test_another_abi_number_is_refused(pins, bpffs, monkeypatch):
    monkeypatch.setattr(loader, "ABI", ABI + 1)
    load(pins).close()
    monkeypatch.undo()
    for attempt in (open_maps, load):
        with pytest.raises(OtherAbiError, match=f"ABI {ABI + 1}.*ABI {ABI}"):
            attempt(pins)
    fresh = load(pins, replace=True)
    assert fresh.maps.read_control().abi == ABI
    fresh.close()


@pytest.mark.maps
def test_a_read_only_opener_can_read(loaded, writer, pins, cgroup):
    writer.put(seed_cgroup(cgroup))
    maps = open_maps(pins, read_only=True)
    assert readback.read_cgroups(maps) == readback.read_cgroups(loaded.maps)
    maps.close()


@pytest.mark.maps
def test_other_file_systems_are_refused_before_anything_is_made(tmp_path, bpffs):
    with pytest.raises(BpffsError, match="BPF file system"):
        load(str(tmp_path / "claim2core"))
    assert not (tmp_path / "claim2core").exists()
    for spec in MAPS:
        (tmp_path / spec.name).touch()
    with pytest.raises(BpffsError):
        open_maps(str(tmp_path))


@pytest.mark.maps
def test_without_capabilities_it_is_said(loaded, pins):
    program = (
        "import sys\n"
        "from nri_claim2core.bpfmap.errors import CapabilityError\n"
        "from nri_claim2core.bpfmap.loader import load\n"
        "try:\n"
        "    load(sys.argv[1])\n"
        "except CapabilityError as error:\n"
        "    print(error.code, error.errno, error)\n"
    )
    without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    done = subprocess.run(
        [*without, sys.executable, "-c", program, pins], check=True, capture_output=True, text=True
    )
    assert done.stdout.startswith(f"{CapabilityError.code} 1 ")
    assert "CAP_BPF" in done.stdout


@pytest.mark.maps
def test_an_object_that_is_none_is_refused_with_libbpfs_words(bpffs, pins, tmp_path):
    wrong = tmp_path / "wrong.bpf.o"
    wrong.write_bytes(b"\x7fELF nothing of use")
    with pytest.raises(LoadError, match="libbpf"):
        load(pins, object_path=str(wrong))
    with pytest.raises(LoadError, match="make bpf"):
        load(pins, object_path=str(tmp_path / "absent.bpf.o"))
    with pytest.raises(MapsMissingError):
        open_maps(pins)


@pytest.mark.maps
def test_reading_closed_maps_fails_as_an_error_of_ours(loaded):
    fd = loaded.maps.fds["c2c_tasks"]
    loaded.close()
    with pytest.raises(syscall.BpfError):
        syscall.map_info(fd)


MOUNTS = (
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "24 22 0:22 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n"
    "33 24 0:30 / /sys/fs/bpf rw,nosuid shared:9 - bpf bpf rw,mode=700\n"
    "34 22 0:31 / /mnt/with\\040blank rw - bpf none rw\n"
    "35 22 0:32 / /over rw - bpf none rw\n"
    "36 35 0:33 / /over rw - tmpfs tmpfs rw\n"
)


@pytest.mark.parametrize("path", ["/sys/fs/bpf", "/sys/fs/bpf/claim2core/x", "/mnt/with blank/x"])
def test_a_directory_on_a_bpf_file_system(tmp_path, path):
    (tmp_path / "mountinfo").write_text(MOUNTS)
    check_bpffs(path, str(tmp_path / "mountinfo"))


@pytest.mark.parametrize(
    ("path", "kind"), [("/sys/fs/bpf2", "sysfs"), ("/mnt/with", "ext4"), ("/over/x", "tmpfs")]
)
def test_a_directory_elsewhere(tmp_path, path, kind):
    (tmp_path / "mountinfo").write_text(MOUNTS)
    with pytest.raises(BpffsError, match=f"is on {kind}"):
        check_bpffs(path, str(tmp_path / "mountinfo"))
