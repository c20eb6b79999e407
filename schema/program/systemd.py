"""sd_notify(3) for a service of `Type=notify`, without systemd's library."""

from __future__ import annotations

import logging
import socket

from sam_pipeline.schema.program.wording import one_line

MAX_FIELD = len("STATUS=") + 500

logger = logging.getLogger(__name__)


class Notifier:
    """Sends datagrams to the address in NOTIFY_SOCKET; does nothing without one.

    It never waits; a message that can't be sent is dropped.
    """

    def __init__(self, address: str | None) -> None:
        self._address = f"\0{address[1:]}" if address and address[0] == "@" else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)

    def send(self, *fields: str) -> None:
        """Send `NAME=value` fields as one message; line ends in a value become blanks."""
        if not self._address:
            return
        text = "\n".join(one_line(field, MAX_FIELD) for field in fields)
        try:
            self._socket.sendto(text.encode(), self._address)
        except OSError as error:
            logger.debug("%s was not sent to systemd: %s", fields[0], error)

    def close(self) -> None:
        self._socket.close()
