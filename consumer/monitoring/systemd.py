"""What systemd is told by a service of `Type=notify`: sd_notify(3), without its library."""

from __future__ import annotations

import logging
import socket
import time

MAX_STATUS = 500

logger = logging.getLogger(__name__)


class Notifier:
    """Datagrams to the address of NOTIFY_SOCKET; nothing at all where there is none.

    A message that can't be sent is dropped: systemd's troubles are not ours.
    """

    def __init__(self, address: str | None) -> None:
        self._address = f"\0{address[1:]}" if address and address[0] == "@" else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)

    def ready(self, status: str) -> None:
        """Started, or reloaded."""
        self._send("READY=1", _status(status))

    def reloading(self) -> None:
        """To be followed by `ready`."""
        microseconds = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send("RELOADING=1", f"MONOTONIC_USEC={microseconds}")

    def stopping(self) -> None:
        self._send("STOPPING=1", _status("stopping: what is in hand is being committed"))

    def status(self, text: str) -> None:
        self._send(_status(text))

    def turned(self) -> None:
        """The watchdog may be quiet: to be called only after a turn of the main loop."""
        self._send("WATCHDOG=1")

    def close(self) -> None:
        self._socket.close()

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            self._socket.sendto("\n".join(lines).encode("utf-8", "replace"), self._address)
        except OSError as error:
            logger.debug("systemd was not told %s: %s", lines[0], error)


def _status(text: str) -> str:
    """One line: another would be another message."""
    return f"STATUS={' '.join(text.split())[:MAX_STATUS]}"
