"""What a run measures every some seconds, in a thread; a value is None while a fault hides it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg2

from tests.soak.growth import TOOL
from tests.soak.stage import Stage, metric
from tests.soak.window import Soak

EVERY_S = 10.0
QUERY_TIMEOUT_S = 3
QUERY = """
SELECT coalesce(max(batch_id), %s), coalesce(sum(messages), 0), pg_database_size(current_database())
FROM loaded_batch WHERE batch_id > %s
"""


@contextmanager
def sampling(soak: Soak, write: Callable[[dict[str, object]], None]) -> Iterator[None]:
    """Take samples inside the block."""
    ending, began = threading.Event(), time.monotonic()

    def run() -> None:
        batch = -1
        while not ending.wait(EVERY_S - (time.monotonic() - began) % EVERY_S):
            values, batch = _database(soak.stage, batch)
            at_s = round(time.monotonic() - began, 1)
            write({"at_s": at_s, **values, **_processes(soak.stage), **_load(soak)})

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(60)


def _database(stage: Stage, batch: int) -> tuple[dict[str, object], int]:
    """The size, and the messages that were committed since the batch."""
    server = stage.postgres
    try:
        connection = psycopg2.connect(
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password,
            dbname=stage.site.database.rpartition("/")[2],
            connect_timeout=QUERY_TIMEOUT_S,
            options=f"-c statement_timeout={1000 * QUERY_TIMEOUT_S}",
            # A frozen server answers nothing, not even that it is late.
            tcp_user_timeout=1000 * QUERY_TIMEOUT_S,
        )
        with connection, connection.cursor() as cursor:
            cursor.execute(QUERY, (batch, batch))
            [(last, messages, size)] = cursor.fetchall()
        connection.close()
    except psycopg2.Error:
        return {"committed": None, "database_bytes": None}, batch
    # Those before the first sample have no time.
    committed = int(messages) if batch >= 0 else None
    return {"committed": committed, "database_bytes": size}, last


def _processes(stage: Stage) -> dict[str, object]:
    """Resident memory in bytes, and open descriptors, of the steady processes and of this one."""
    pids = {name: process.pid for name, process in stage.steady.items()} | {TOOL: os.getpid()}
    rss, descriptors = dict.fromkeys(pids), dict.fromkeys(pids)
    for name, pid in pids.items():
        with suppress(OSError, IndexError):
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            rss[name] = pages * os.sysconf("SC_PAGE_SIZE")
            descriptors[name] = len(os.listdir(f"/proc/{pid}/fd"))
    return {"rss": rss, "descriptors": descriptors}


def _load(soak: Soak) -> dict[str, object]:
    stage = soak.stage
    return {
        "published": soak.published,
        "lag_s": metric(stage.metrics_ports[1], "lag_seconds"),
        "spool_bytes": sum(_size(spool.path) for spool in stage.spools),
        "broker_bytes": sum(_size(stage.brokers[name].directory) for name in stage.brokers),
    }


def _size(directory: Path) -> int:
    size = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):  # removed since
                size += Path(folder, name).stat().st_size
    return size
