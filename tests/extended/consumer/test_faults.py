"""Full disks, a silent network, unsynced files, and a client generated from the door's document."""

from __future__ import annotations

import importlib
import json
import shutil
import sqlite3
import subprocess
import sys
import time
import uuid
from collections import deque
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path

from sqlalchemy import text

from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.database.version import upgrade
from tests.services import ServiceMissing, missing, needed
from tests.services.postgres import fresh_database, running_postgres, server_account
from tests.services.process import HOST
from tests.services.strace import strace
from tests.support.builders import metric_message, metric_result
from tests.support.commands import PROGRAMS
from tests.support.conservation import consumed, key_of, numbered
from tests.support.consumer.daemon import Subscription, row_keys, running, site_of
from tests.support.consumer.door import KEPT, PATH, door_site, listening, new_door, servlet_site
from tests.support.consumer.faults import LOADER_SESSIONS, WAITING, fill_up
from tests.support.consumer.site import Site, make_site, results, sqlite_site
from tests.support.network import own_network, silent
from tests.support.small_disk import small_disk
from tests.support.waiting import eventually

NOTICED_S = 60
DRAIN_S = 10
UNAVAILABLE = 69


def spool_site(directory: Path, database: str) -> Site:
    directory.mkdir(exist_ok=True)
    return make_site(directory, database, [f"spool://{directory}/spool"])


def pending(site: Site) -> int:
    return DirectoryQueue(site.config.with_name("spool")).count()


def test_a_full_disk_under_the_state_directory_stops_nothing(tmp_path: Path) -> None:
    site = sqlite_site(tmp_path)
    with small_disk(tmp_path / "state", "size=64k") as state:
        assert site.drain().code == 0
        fill_up(state / "ballast")
        site.fill(*results(50))
        with running(site) as daemon:
            site.wait_for_rows(50)
            site.fill(*results(50, "org.sam.After"))
            site.wait_for_rows(100)
            assert daemon.stop().code == 0

    files = ("attempts", "claims")
    assert [daemon.log.count(f".{file}: No space left") for file in files] == [1, 1]


def load_through_a_full_disk(site: Site, disk: Path, words: str) -> None:
    with running(site) as daemon:
        site.fill(*results(10, "before"))
        site.wait_for_rows(10)
        fill_up(disk / "ballast")
        site.fill(*results(500, "after"))
        daemon.wait_for(words, WAITING)
        (disk / "ballast").unlink()

        site.wait_for_rows(510)
        assert daemon.stop().code == 0
    assert pending(site) == 0


def test_the_daemon_waits_while_the_disk_of_sqlite_is_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=4m") as disk:
        site = spool_site(tmp_path, f"sqlite:///{disk}/sam.db")
        load_through_a_full_disk(site, disk, "disk is full")
        assert site.scalar("PRAGMA integrity_check") == "ok"


def test_the_daemon_waits_while_the_disk_of_postgresql_is_full(tmp_path: Path) -> None:
    name = f"small_{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        server = stack.enter_context(needed(running_postgres()))
        # Not in pytest's directory, which the account of PostgreSQL cannot enter.
        disk = stack.enter_context(small_disk(server.directory / name, "size=48m"))
        shutil.chown(disk, server_account())
        server.execute(f"CREATE TABLESPACE {name} LOCATION '{disk}'")
        server.execute(f"CREATE DATABASE {name} TABLESPACE {name}")
        engine = make_engine(server.url(name))
        upgrade(engine)  # there, not as a copy
        engine.dispose()
        site = spool_site(tmp_path, server.url(name))
        load_through_a_full_disk(site, disk, "No space left on device")
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")
        server.execute(f"DROP TABLESPACE {name}")


def test_a_commit_that_is_not_on_disk_is_not_acked(tmp_path: Path) -> None:
    site = sqlite_site(tmp_path)
    site.fill(*results(10))
    other = sqlite3.connect(tmp_path / "sam.db")
    other.execute("PRAGMA user_version = 1")  # a new log is synced whatever the setting

    try:
        drain = site.command("run", "--drain", "--timeout", "1")
        drained = strace(drain, "fsync,fdatasync", "error=EIO", "1+")
    except ServiceMissing as reason:
        missing(reason.name, reason.how_to_get_it)
    other.close()

    assert drained.returncode == UNAVAILABLE, drained.stderr
    assert pending(site) == 10


def test_silence_is_noticed_within_a_minute_and_loading_goes_on_after_it(tmp_path: Path) -> None:
    """The daemon sends into the silence; the drain waits for an answer when it begins."""
    with own_network(), needed(running_postgres()) as server:
        idle = spool_site(tmp_path / "idle", fresh_database(server))
        waiting = spool_site(tmp_path / "waiting", fresh_database(server))
        waiting.fill(*results(10))
        # A client that never notices: its server must, and then release the lock.
        vanished = make_engine(f"{waiting.database}?keepalives=0&tcp_user_timeout=0")
        at_lock = f"SELECT count(*) {LOADER_SESSIONS} AND wait_event_type = 'Lock'"
        with running(idle) as daemon, vanished.connect() as connection:
            idle.fill(*results(10, "before"))
            idle.wait_for_rows(10)
            connection.execute(text("LOCK TABLE metric_result IN EXCLUSIVE MODE"))
            drain = subprocess.Popen(waiting.command("run", "--drain", "--timeout", f"{DRAIN_S}"))
            eventually(lambda: waiting.scalar(at_lock))

            with silent(server.port):
                silent_since = time.monotonic()
                idle.fill(*results(10, "meanwhile"))
                daemon.wait_for(WAITING, timeout_s=NOTICED_S)
                code = drain.wait(silent_since + DRAIN_S + NOTICED_S - time.monotonic())

            idle.wait_for_rows(20)
            assert daemon.alive
            assert code == UNAVAILABLE
            assert waiting.drain().code == 0
            assert waiting.rows() == 10
            connection.invalidate()
        vanished.dispose()


DISK, BALLAST_BYTES, ON_THE_DISK = "2m", 1_500_000, 300
"""The disk has room for all messages, but not beside the ballast."""
PACKAGE = "generated_client"


def test_a_full_disk_behind_a_door_is_answered_at_once_and_loses_nothing(tmp_path: Path) -> None:
    door = new_door()
    servlet = servlet_site(tmp_path / "servlet", door)
    messages = numbered("disk", range(ON_THE_DISK))
    waiting = deque(messages)
    with small_disk(tmp_path / "disk", f"size={DISK}") as disk:
        spool = f"spool://{disk / 'spool'}"
        (disk / "ballast").write_bytes(bytes(BALLAST_BYTES))
        with listening(servlet, door, "--to", spool) as daemon, door.client() as client:

            def post_next() -> bool:
                """Whether the next message was kept; otherwise it remains the next one."""
                names = {"Sam_Message_Id": waiting[0].message_id}
                answer = client.post(f"{PATH}/metricOutput", waiting[0].body, **names)
                if answer.status == KEPT:
                    waiting.popleft()
                    return True
                assert answer.status == 503 and "retry-after" in answer.headers, answer
                return False

            while post_next():
                pass
            kept_on_the_full_disk = len(messages) - len(waiting)
            assert not any(post_next() for _ in range(5))
            (disk / "ballast").unlink()
            while waiting:
                eventually(post_next)
            daemon.stop()
        site = site_of(tmp_path, [spool], Subscription("/topic/door"))
        assert site.drain().code == 0
        rows = row_keys(site)

    assert 0 < kept_on_the_full_disk < len(messages)
    consumed([key_of(message.body) for message in messages], rows)


def test_a_client_generated_from_the_document_gets_typed_answers(tmp_path: Path) -> None:
    config = {
        "post_hooks": [],
        # The generator knows no lines of JSON, but how to send bytes.
        "content_type_overrides": {"application/x-ndjson": "application/octet-stream"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    with door_site(tmp_path) as door:
        url = f"http://{HOST}:{door.door.port}"
        program = PROGRAMS / "openapi-python-client"
        options = ("--meta", "none", "--url", f"{url}/v1/openapi.json")
        paths = ("--config", tmp_path / "config.json", "--output-path", tmp_path / PACKAGE)
        subprocess.run([program, "generate", *options, *paths], check=True)
        sys.path.insert(0, str(tmp_path))
        client = importlib.import_module(PACKAGE)
        post_message = importlib.import_module(f"{PACKAGE}.api.default.post_message")
        post_messages = importlib.import_module(f"{PACKAGE}.api.default.post_messages")
        file = importlib.import_module(f"{PACKAGE}.types").File
        sys.path.remove(str(tmp_path))
        results = (metric_result(metricName="org.sam.Client"), metric_result(metricStatus="FINE"))
        records = [client.models.Record.from_dict(result) for result in results]
        messages = [metric_message(metric_result(metricName=f"org.sam.{n}")) for n in range(3)]

        with client.Client(url) as connection:
            loaded, again, problem = (
                post_message.sync(
                    "metricOutput", client=connection, body=records, sam_message_id=name
                )
                for name in ("client-1", "client-1", "i" * 1000)
            )
            lines = file(BytesIO(b"".join(serialise(message) + b"\n" for message in messages)))
            many = post_messages.sync(client=connection, body=lines)

    assert isinstance(loaded, client.models.Loaded)
    assert (loaded.message_id, loaded.rows, loaded.duplicates) == ("client-1", 1, 0)
    assert [(one.number, one.reason) for one in loaded.dead_letters] == [(2, "bad-status")]
    assert (again.rows, again.duplicates) == (0, 1)
    assert isinstance(problem, client.models.Problem)
    assert (problem.status, "Sam-Message-Id" in problem.detail) == (400, True)
    outcomes = [json.loads(line) for line in many.payload.read().splitlines()]
    assert [outcome["messageId"] for outcome in outcomes] == [m.message_id for m in messages]
    assert [(outcome["status"], outcome["rows"]) for outcome in outcomes] == [(200, 1)] * 3
