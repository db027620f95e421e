"""Watch the sockets of idle plugins on one thread, and stay out of the way of calls.

A plugin may call the runtime or go away at any time. While the runtime calls a plugin, the
calling thread reads that socket itself; the watcher's interest is switched off for that time,
so that no second thread is woken by the answer.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable
from typing import Final

from nri_claim2core.nri.runtime.link import PluginLink

_INTEREST: Final = select.EPOLLIN | select.EPOLLRDHUP


class Watcher:
    """Calls `on_ready(link)` on its own thread when a watched socket has something to read."""

    def __init__(self, on_ready: Callable[[PluginLink], None]) -> None:
        self._on_ready = on_ready
        self._epoll = select.epoll()
        self._links: dict[int, PluginLink] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._epoll.register(self._wake_read, select.EPOLLIN)
        self._thread: threading.Thread | None = None

    def add(self, link: PluginLink) -> None:
        """Start to watch a link."""
        self._links[link.descriptor] = link
        with contextlib.suppress(OSError):  # closed already: the next call on it will tell
            self._epoll.register(link.descriptor, _INTEREST)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="nri-watcher", daemon=True)
            self._thread.start()

    def pause(self, link: PluginLink) -> None:
        """Leave a link alone, since its caller reads it."""
        self._interest(link, 0)

    def resume(self, link: PluginLink) -> None:
        """Watch a link again."""
        self._interest(link, _INTEREST)

    def forget(self, link: PluginLink) -> None:
        """Forget a link that has been closed; its descriptor left the watch with that."""
        if self._links.get(link.descriptor) is link:
            del self._links[link.descriptor]

    def close(self) -> None:
        """End the thread. Blocking until it has ended, unless called on it."""
        os.write(self._wake_write, b"x")
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._epoll.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _interest(self, link: PluginLink, events: int) -> None:
        if not link.lost and self._links.get(link.descriptor) is link:
            with contextlib.suppress(OSError):  # closed meanwhile: epoll has dropped it
                self._epoll.modify(link.descriptor, events)

    def _run(self) -> None:
        while True:
            for descriptor, _ in self._epoll.poll():
                if descriptor == self._wake_read:
                    return
                link = self._links.get(descriptor)
                if link is not None:
                    self._on_ready(link)
