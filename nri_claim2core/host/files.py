"""Reading files of the node without being fooled, blocked or flooded by them.

Two kinds of file, two functions. Files under /proc, /sys and cgroupfs have no meaningful size or
time: `read_kernel_text` reads them in one go. Files that other programs write are read by
`read_stable`: regular files only, at most so many bytes, again when they change meanwhile, with
the stamp (inode, size, times) that lets a later `stat` prove them unchanged. `CachedFile` keeps
one parsed value by that stamp. A stamp taken while the file is very young proves nothing - two
writes within one tick of the kernel's clock share it - so such content is used and never cached.

Nothing holds a lock while it reads: a thread stuck in a read keeps nobody else waiting, and what
it stores later is checked against the stamp like anything else. Foreign errors become HostError.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from nri_claim2core.model.errors import HostError

UNREADABLE: Final = "C2C-HOST-01"
"""Code of a file that the kernel does not let us read."""

KUBELET_DIR: Final = "/var/lib/kubelet"
"""Kubelet's default --root-dir; its state files are in it."""

MALFORMED: Final = "C2C-HOST-02"
"""Code of a file whose content is not what its readers agreed on."""

READ_ATTEMPTS: Final = 3
"""A writer that changes a file in place needs microseconds; one that never ends is a fault."""

SETTLE_NS: Final = 100_000_000
"""File times advance in ticks of at most 10 ms; ten of them are beyond doubt."""

MAX_KERNEL_TEXT: Final = 1 << 20
"""No file under /proc or /sys that is read here is near a megabyte."""

_FIRST_READ: Final = 4096
"""Room for most files: larger buffers are mapped and unmapped for each read."""

_NEXT_READS: Final = 1 << 18

_MAX_LINKS: Final = 40
_OPEN_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY

Stamp = tuple[int, int, int, int, int]
"""Device, inode, size, mtime_ns, ctime_ns."""

Clock = Callable[[], int]
"""Nanoseconds of the clock that stamps files (CLOCK_REALTIME)."""

T = TypeVar("T")


class Content(NamedTuple):
    """A file's bytes with the stamp they had, and whether the stamp proves them from now on."""

    stamp: Stamp
    data: bytes
    settled: bool


def stamp_of(status: os.stat_result) -> Stamp:
    """Give what must be equal for a file to count as unchanged."""
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def host_path(root: str, path: str) -> str:
    """Give where `path` of the node stands on this machine, links resolved inside `root`.

    On most nodes /var/run is a link to /run; below another root the kernel would follow it out
    of the tree, to this machine's own files.

    Raises: HostError for a loop of links. Blocking: host read, unless root is `/`.
    """
    if root == "/":
        return path
    done: list[str] = []
    pending = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    links = 0
    while pending:
        part = pending.pop()
        if part == "..":
            if done:
                done.pop()
            continue
        try:
            target = os.readlink("/".join((root, *done, part)))  # noqa: PTH115 - text in, text out
        except OSError:
            # Not a link, or not there: the reader that opens it says which.
            done.append(part)
            continue
        links += 1
        if links > _MAX_LINKS:
            raise HostError(f"{path}: too many symbolic links", path=path, errno=errno.ELOOP)
        if target.startswith("/"):
            done.clear()
        pending.extend(p for p in reversed(target.split("/")) if p not in ("", "."))
    return "/".join((root.rstrip("/"), *done))


def read_stable(path: str, *, limit: int, clock: Clock = time.time_ns) -> Content:
    """Read a whole regular file that other programs write.

    Raises: HostError: not there, not a regular file, above `limit` bytes, or changing during
    every one of READ_ATTEMPTS reads. Blocking: host read; never waits for a FIFO's writer.
    """
    try:
        # Before opening: to open some devices is to use them.
        _check_regular(path, os.stat(path).st_mode)  # noqa: PTH116 - text paths throughout
        for _ in range(READ_ATTEMPTS):
            content = _read_once(path, limit, clock)
            if content is not None:
                return content
    except OSError as error:
        raise unreadable(path, error) from error
    raise HostError(
        f"{path}: changed during each of {READ_ATTEMPTS} reads",
        path=path,
        errno=errno.EAGAIN,
        hint="its writer should write a temporary file and rename it",
        code=UNREADABLE,
    )


def read_kernel_text(path: str) -> str:
    """Read a file of procfs, sysfs or cgroupfs.

    Raises: HostError with the errno. Blocking: host read.
    """
    try:
        fd = os.open(path, _OPEN_FLAGS)
        try:
            _check_regular(path, os.fstat(fd).st_mode)
            data = _read_all(fd, MAX_KERNEL_TEXT)
        finally:
            os.close(fd)
    except OSError as error:
        raise unreadable(path, error) from error
    return data.decode("utf-8", "surrogateescape")


class SysfsFile:
    """A file of this machine's sysfs that is read again and again; safe for several threads.

    It stays open, and a read at its beginning has the kernel write its text anew: one system
    call instead of five. Of no use for a captured tree, where a file may be replaced.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._fd = os.open(path, _OPEN_FLAGS)
        except OSError:
            self._fd = -1

    def read(self) -> str:
        """Give the text as it is now. Raises: HostError with the errno. Blocking: host read."""
        if self._fd >= 0:
            try:
                # sysfs gives all of a file to one read, a page at most.
                data = os.pread(self._fd, _FIRST_READ, 0)
                return data.decode("utf-8", "surrogateescape")
            except OSError:
                pass  # what stood here is gone: its name tells what there is now
        return read_kernel_text(self._path)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def unreadable(path: str, error: OSError) -> HostError:
    """Map what the kernel said about `path`."""
    number = error.errno or 0
    hints = {
        errno.EACCES: "run as root, or mount the directory into the container readable",
        errno.EPERM: "run as root, or mount the directory into the container readable",
    }
    return HostError(
        f"{path}: {os.strerror(number) if number else error}",
        path=path,
        errno=number,
        hint=hints.get(number, ""),
        code=UNREADABLE,
    )


class CachedFile(Generic[T]):
    """One file's parsed value, read again only when its stamp changed.

    `parse` must be a pure function of the bytes. Safe for use by several threads at once.
    """

    def __init__(
        self,
        root: str,
        path: str,
        *,
        limit: int,
        parse: Callable[[bytes], T],
        clock: Clock = time.time_ns,
    ) -> None:
        self._root = root
        self._path = path
        self._limit = limit
        self._parse = parse
        self._clock = clock
        self._kept: tuple[Stamp, T] | None = None

    def read(self) -> T:
        """Give the value of the file as it is now.

        Raises: HostError as read_stable, and what `parse` raises. Blocking: host read; one
        stat when nothing changed.
        """
        path = host_path(self._root, self._path)
        kept = self._kept
        if kept is not None:
            try:
                status = os.stat(path)  # noqa: PTH116 - text paths throughout
            except OSError as error:
                raise unreadable(path, error) from error
            if stamp_of(status) == kept[0]:
                return kept[1]
        content = read_stable(path, limit=self._limit, clock=self._clock)
        value = self._parse(content.data)
        self._kept = (content.stamp, value) if content.settled else None
        return value


def _read_once(path: str, limit: int, clock: Clock) -> Content | None:
    fd = os.open(path, _OPEN_FLAGS)
    try:
        # The clock first: a write after this instant moves the times past SETTLE_NS.
        now = clock()
        before = os.fstat(fd)
        _check_regular(path, before.st_mode)
        if before.st_size > limit:
            raise _too_long(path, limit)
        data = _read_all(fd, limit + 1)
        stamp = stamp_of(before)
        if len(data) != before.st_size or stamp_of(os.fstat(fd)) != stamp:
            return None
    finally:
        os.close(fd)
    # ctime alone: every write moves it, and unlike mtime nobody can set it.
    return Content(stamp, data, now - before.st_ctime_ns >= SETTLE_NS)


def _read_all(fd: int, limit: int) -> bytes:
    chunks: list[bytes] = []
    left = limit
    size = _FIRST_READ
    while left > 0:
        chunk = os.read(fd, min(left, size))
        if not chunk:
            break
        chunks.append(chunk)
        left -= len(chunk)
        if len(chunk) == size:
            size = _NEXT_READS
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


_KINDS: Final = (
    (stat.S_ISDIR, "directory"),
    (stat.S_ISFIFO, "FIFO"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "character device"),
    (stat.S_ISBLK, "block device"),
)


def _check_regular(path: str, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kind = next((name for test, name in _KINDS if test(mode)), "special file")
    raise HostError(f"{path}: is a {kind}, not a regular file", path=path, code=UNREADABLE)


def _too_long(path: str, limit: int) -> HostError:
    return HostError(
        f"{path}: longer than {limit} bytes", path=path, errno=errno.EFBIG, code=UNREADABLE
    )
