"""The time from publishing a message to committing its row.

The id of a message contains the time at which it was due, and PostgreSQL stores the time at which
each row was committed. No consumer can be faster than the broker confirms a message.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import quantiles

from sqlalchemy import text

from sam_pipeline.schema.messages.message import MESSAGE_ID, Message, new_message_id
from sam_pipeline.schema.net.stomp.frame import encode
from sam_pipeline.sql.database.engine import reading
from tests.benchmarks.common import check
from tests.benchmarks.road import DESTINATION, Road, single
from tests.support.waiting import eventually

TICK_S = 0.005
"""How often the sender at an even pace sends what is due."""
LAGS = text("""
    SELECT message_id, extract(epoch FROM pg_xact_commit_timestamp(xmin))
    FROM metric_result WHERE message_id > :after
""")


def commit_lags(road: Road, after: str, count: int) -> list[float]:
    """Wait until all messages with larger ids are committed; return how long each took (s)."""
    eventually(lambda: road.commits(after).rows >= count, timeout_s=60)
    with reading(road.engine) as connection:
        rows = connection.execute(LAGS, {"after": after}).all()
    check("rows", len(rows), count)
    due = [int(message_id.partition("-")[0], 16) / 1e6 for message_id, _ in rows]
    return [float(committed) - at for at, (_, committed) in zip(due, rows, strict=True)]


def p99(lags: Sequence[float]) -> float:
    return quantiles(lags, n=100)[98]


def send_evenly(
    road: Road, a_second: int, duration_s: float, destination: str = DESTINATION
) -> tuple[str, list[float]]:
    """Send messages; return an id smaller than theirs, and the delays of their receipts (s)."""
    before = new_message_id()
    count = round(a_second * duration_s)
    receipts_at: list[float] = []
    with connected(road, receipts_at) as connection:
        began = time.time()
        sent = 0
        while sent < count:
            due = min(int((time.time() - began) * a_second) + 1, count)
            frames = [
                frame(single(road.results), began + number / a_second, destination)
                for number in range(sent, due)
            ]
            if frames:
                connection.sendall(b"".join(frames))
            sent = due
            time.sleep(TICK_S)
    delays_s = [at - began - number / a_second for number, at in enumerate(receipts_at)]
    return before, delays_s[:count]


def frame(message: Message, due_at: float, destination: str) -> bytes:
    """The SEND frame of a message; its id contains the time it was due, even if it is late."""
    own_id = f"{int(due_at * 1e6):014x}-{os.urandom(9).hex()}"
    sent = {**message.headers, MESSAGE_ID: own_id, "receipt": "sent"}
    return encode("SEND", {"destination": destination, **sent}, message.body)


@contextmanager
def connected(road: Road, receipts_at: list[float]) -> Iterator[socket.socket]:
    """A connection for sending, while a thread notes the times of the receipts.

    They arrive in the order of the messages, all of them before the block ends.
    """
    with socket.create_connection((road.broker.host, road.broker.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        connection.recv(65536)

        def read_receipts() -> None:
            end = b""
            while b"receipt-id:bye" not in end:
                data = connection.recv(65536)
                if not data:
                    raise SystemExit(f"the broker closed the connection after {end!r}")
                receipts_at.extend([time.time()] * data.count(b"\0"))
                end = (end + data)[-500:]

        reader = threading.Thread(target=read_receipts)
        reader.start()
        yield connection
        connection.sendall(b"DISCONNECT\nreceipt:bye\n\n\0")
        reader.join()
