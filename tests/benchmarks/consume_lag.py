"""Part C: the time from publishing a message to committing its row.

The id of a message contains the time at which it was due, and PostgreSQL stores the time at which
each row was committed. The time until the broker confirms a message is printed for comparison: no
consumer can be faster.
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
from tests.benchmarks.load import print_figure
from tests.services.process import wait_until

P99_BOUND_S = {1000: 0.5, 15: 0.25}
"""By messages per second."""

WARM_UP_S = 3.0
TICK_S = 0.005

LAGS = text("""
    SELECT message_id, extract(epoch FROM pg_xact_commit_timestamp(xmin))
    FROM metric_result WHERE message_id > :after
""")


def lag(road: Road, a_second: int, duration_s: float) -> bool:
    """Measure a running daemon with persistent messages at an even pace, sent one by one."""
    with road.consumer() as consumer:
        consumer.wait_until_subscribed()
        send_evenly(road, a_second, WARM_UP_S)
        after, confirmed = send_evenly(road, a_second, duration_s)
        lags = commit_lags(road, after, round(a_second * duration_s))
        consumer.stop()
    print(f"{a_second} messages/s for {duration_s:g} s, seconds after each was due")
    print_figure("the broker's receipt, p99, s", f"{p99(confirmed):.3f}")
    print_figure("committed, median, s", f"{median(lags):.3f}")
    print_figure("committed, p99, s", f"{p99(lags):.3f}", P99_BOUND_S[a_second], "<=")
    print_figure("committed, maximum, s", f"{max(lags):.3f}")
    return p99(lags) <= P99_BOUND_S[a_second]


def commit_lags(road: Road, after: str, count: int) -> list[float]:
    """Wait until all messages with larger ids are committed; return how long each took (s)."""
    wait_until(lambda: road.commits(after).rows >= count, timeout_s=60)
    with reading(road.engine) as connection:
        rows = connection.execute(LAGS, {"after": after}).all()
    if len(rows) != count:
        raise SystemExit(f"{len(rows)} rows are stored, not {count}")
    return [float(committed) - sent_at(message_id) for message_id, committed in rows]


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


def frame(message: Message, due_at: float, destination: str = DESTINATION) -> bytes:
    """The SEND frame of a message; its id contains the time it was due, even if it is late."""
    sent = {
        "destination": destination,
        **message.headers,
        MESSAGE_ID: f"{int(due_at * 1e6):014x}-{os.urandom(9).hex()}",
        "receipt": "sent",
    }
    return encode("SEND", sent, message.body)


def sent_at(message_id: str) -> float:
    return int(message_id.partition("-")[0], 16) / 1e6


@contextmanager
def connected(road: Road, receipts_at: list[float]) -> Iterator[socket.socket]:
    """A connection for sending, while a thread notes the times of the receipts.

    All receipts have arrived when the block ends.
    """
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
    """Note the time of each receipt; they arrive in the order of the messages they confirm."""
    end = b""
    while b"receipt-id:bye" not in end:
        data = connection.recv(65536)
        if not data:
            raise SystemExit(f"the broker closed the connection after {end!r}")
        receipts_at += [time.time()] * data.count(b"\0")
        end = (end + data)[-500:]
