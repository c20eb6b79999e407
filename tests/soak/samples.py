"""What a run measures every some seconds, in a thread; a value is None while a fault hides it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg2

from tests.soak.stage import Stage, metric
from tests.soak.verdict import TOOL
from tests.soak.window import Soak

EVERY_S = 10.0
QUERY_TIMEOUT_S = 3


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
    name = stage.site.database.rpartition("/")[2]
    try:
        connection = psycopg2.connect(
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password,
            dbname=name,
            connect_timeout=QUERY_TIMEOUT_S,
            options=f"-c statement_timeout={1000 * QUERY_TIMEOUT_S}",
            # A frozen server answers nothing, not even that it is late.
            tcp_user_timeout=1000 * QUERY_TIMEOUT_S,
        )
        with connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT coalesce(max(batch_id), %s), coalesce(sum(messages), 0),"
                " pg_database_size(current_database()) FROM loaded_batch WHERE batch_id > %s",
                (batch, batch),
            )
            [(last, messages, size)] = cursor.fetchall()
        connection.close()
    except psycopg2.Error:
        return {"committed": None, "database_bytes": None}, batch
    # Those before the first sample have no time.
    committed = int(messages) if batch >= 0 else None
    return {"committed": committed, "database_bytes": size}, last


def _processes(stage: Stage) -> dict[str, object]:
    """Resident memory in bytes, and open descriptors, of the steady processes and of this one."""
    pids = {name: process.pid for name, process in stage.steady.items()}
    pids[TOOL] = os.getpid()
    return {
        "rss": {name: _resident_bytes(pid) for name, pid in pids.items()},
        "descriptors": {name: _descriptors(pid) for name, pid in pids.items()},
    }


def _load(soak: Soak) -> dict[str, object]:
    stage = soak.stage
    [_, port] = stage.metrics_ports
    files = [path for spool in stage.spools for path in _files(spool.path)]
    stores = [path for name in stage.brokers for path in _files(stage.brokers[name].directory)]
    return {
        "published": soak.published,
        "lag_s": metric(port, "lag_seconds"),
        "spool_messages": len(files),
        "spool_bytes": sum(map(_size, files)),
        "broker_bytes": sum(map(_size, stores)),
    }


def _resident_bytes(pid: int) -> int | None:
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _descriptors(pid: int) -> int | None:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None


def _files(directory: Path) -> list[Path]:
    return [Path(folder) / name for folder, _, names in os.walk(directory) for name in names]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # removed since
        return 0
