"""Pack what a run needs into the tar that the guest unpacks to /c2c/in.

The package goes in as a wheel, the way users get it, and lies outside the tree of the tests: a
file missing in the wheel shows. Tests, configuration and documentation come from the work
tree, uncommitted changes included.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from nri_claim2core.lab.workload import compile_first_mask

REPO = Path(__file__).parents[2]
GUEST_REPO = "repo"
"""Directory of the work tree below /c2c/in."""

FIRST_MASK = "firstmask"
"""The workload of the test containers below /c2c/in, where this machine can compile it."""

_PACKAGE = "nri_claim2core/"
_GUEST_SCRIPTS = ("init.sh", "session.sh")


def build_wheel(directory: Path) -> Path:
    """Build the package's wheel into `directory`.

    Raises: CalledProcessError when the build fails. Blocking: about a second.
    """
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(
        command, cwd=REPO, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    )
    return next(directory.glob("*.whl"))


def write_payload(target: Path, script: str) -> None:
    """Write the tar: wheel, tests, the guest's own scripts and `script` as its command.

    Raises: CalledProcessError when git or the build fails. Blocking: as `build_wheel`.
    """
    with (
        tempfile.TemporaryDirectory(prefix="c2c-wheel-") as directory,
        tarfile.open(target, "w") as archive,
    ):
        with zipfile.ZipFile(build_wheel(Path(directory))) as wheel:
            for name in wheel.namelist():
                _add(archive, f"wheel/{name}", wheel.read(name))
        for name in _work_tree():
            if not name.startswith(_PACKAGE) and (REPO / name).is_file():
                archive.add(REPO / name, f"{GUEST_REPO}/{name}", recursive=False)
        for name in _GUEST_SCRIPTS:
            archive.add(Path(__file__).with_name(name), name)
        if (program := compile_first_mask(REPO / "e2e" / "workload" / "firstmask.c")) is not None:
            _add(archive, FIRST_MASK, program)
        _add(archive, "command", script.encode())


def _work_tree() -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=REPO, check=True, stdout=subprocess.PIPE, text=True)
    return sorted(set(filter(None, done.stdout.split("\0"))))


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    archive.addfile(entry, io.BytesIO(content))
