"""Part C: how long a message takes from its publishing to its row.

The id of a message holds the time it was due, PostgreSQL keeps the time each row was committed.
What the broker takes until it confirms a message is told beside it: no consumer can be quicker.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median, quantiles

from sqlalchemy import text

from sam_pipeline.schema.messages.message import MESSAGE_ID, Message, new_message_id
from sam_pipeline.schema.net.stomp_frame import encode
from sam_pipeline.sql.database.engine import reading
from tests.benchmarks.consume_road import DESTINATION, Road, single
from tests.benchmarks.load import tell
from tests.services.process import wait_until

P99_BOUND_S = {1000: 0.5, 15: 0.25}
"""By messages a second."""

WARM_UP_S = 3.0
TICK_S = 0.005

LAGS = text("""
    SELECT message_id, extract(epoch FROM pg_xact_commit_timestamp(xmin))
    FROM metric_result WHERE message_id > :after
""")


def lag(road: Road, a_second: int, duration_s: float) -> bool:
    """A running daemon, and messages at an even pace, each sent by itself and persistent."""
    with road.consumer() as consumer:
        consumer.wait_until_subscribed()
        send_evenly(road, a_second, WARM_UP_S)
        after, confirmed = send_evenly(road, a_second, duration_s)
        count = round(a_second * duration_s)
        wait_until(lambda: road.commits(after).rows >= count, timeout_s=60)
        consumer.stop()
    with reading(road.engine) as connection:
        rows = connection.execute(LAGS, {"after": after}).all()
    lags = [float(committed) - sent_at(message_id) for message_id, committed in rows]
    if len(lags) != count:
        raise SystemExit(f"{len(lags)} rows are there, not {count}")
    print(f"{a_second} messages/s for {duration_s:g} s, from when each was due")
    tell("the broker's receipt, 99 of 100, s", f"{p99(confirmed):.3f}")
    tell("committed, half of them, s", f"{median(lags):.3f}")
    tell("committed, 99 of 100, s", f"{p99(lags):.3f}", P99_BOUND_S[a_second], "<=")
    tell("committed, all, s", f"{max(lags):.3f}")
    return p99(lags) <= P99_BOUND_S[a_second]


def p99(lags: Sequence[float]) -> float:
    return quantiles(lags, n=100)[98]


def send_evenly(road: Road, a_second: int, duration_s: float) -> tuple[str, list[float]]:
    """Gives an id smaller than all that were sent, and how late their receipts were (s)."""
    before = new_message_id()
    count = round(a_second * duration_s)
    receipts_at: list[float] = []
    with connected(road, receipts_at) as connection:
        began = time.time()
        sent = 0
        while sent < count:
            due = min(int((time.time() - began) * a_second) + 1, count)
            frames = [
                frame(single(road.results), began + number / a_second)
                for number in range(sent, due)
            ]
            if frames:
                connection.sendall(b"".join(frames))
            sent = due
            time.sleep(TICK_S)
    late = [at - began - number / a_second for number, at in enumerate(receipts_at)]
    return before, late[:count]


def frame(message: Message, due_at: float) -> bytes:
    """A message that is late already is not younger for it."""
    sent = {
        "destination": DESTINATION,
        **message.headers,
        MESSAGE_ID: f"{int(due_at * 1e6):014x}-{os.urandom(9).hex()}",
        "receipt": "sent",
    }
    return encode("SEND", sent, message.body)


def sent_at(message_id: str) -> float:
    return int(message_id.partition("-")[0], 16) / 1e6


@contextmanager
def connected(road: Road, receipts_at: list[float]) -> Iterator[socket.socket]:
    """A connection on which nobody waits for a receipt; at its end all have come."""
    with socket.create_connection((road.broker.host, road.broker.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        connection.recv(65536)
        reader = threading.Thread(target=read_receipts, args=[connection, receipts_at])
        reader.start()
        yield connection
        connection.sendall(b"DISCONNECT\nreceipt:bye\n\n\0")
        reader.join()


def read_receipts(connection: socket.socket, receipts_at: list[float]) -> None:
    """They come in the order of what they confirm."""
    end = b""
    while b"receipt-id:bye" not in end:
        data = connection.recv(65536)
        if not data:
            raise SystemExit(f"the broker closed the connection after {end!r}")
        receipts_at += [time.time()] * data.count(b"\0")
        end = (end + data)[-500:]
