"""A database that neither answers nor closes its connections, as behind a broken network."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from sqlalchemy import text

from sam_pipeline.sql.database.engine import make_engine
from tests.services import needed
from tests.services.postgres import fresh_database, running_postgres
from tests.support.consumer.daemon import running
from tests.support.consumer.faults import LOADER_SESSIONS, WAITING
from tests.support.consumer.site import Site, eventually, fill_spool, make_site, results
from tests.support.network import own_network, silent

NOTICED_S = 60
DRAIN_S = 10
UNAVAILABLE = 69


def spool_site(directory: Path, database: str) -> tuple[Site, Path]:
    directory.mkdir()
    spool = directory / "spool"
    return make_site(directory, database, [f"spool://{spool}"]), spool


def test_silence_is_noticed_within_a_minute_and_loading_goes_on_after_it(tmp_path: Path) -> None:
    """The daemon sends into the silence; the drain waits for an answer when it begins."""
    with own_network(), needed(running_postgres()) as server:
        idle, idle_spool = spool_site(tmp_path / "idle", fresh_database(server))
        waiting, waiting_spool = spool_site(tmp_path / "waiting", fresh_database(server))
        fill_spool(waiting_spool, results(10))
        # A client that never notices: its server must, and then release the lock.
        vanished = make_engine(f"{waiting.database}?keepalives=0&tcp_user_timeout=0")
        with running(idle) as daemon, vanished.connect() as connection:
            fill_spool(idle_spool, results(10, "before"))
            idle.wait_for_rows(10)
            connection.execute(text("LOCK TABLE metric_result IN EXCLUSIVE MODE"))
            drain = subprocess.Popen(waiting.command("run", "--drain", "--timeout", f"{DRAIN_S}"))
            eventually(
                lambda: waiting.scalar(
                    f"SELECT count(*) {LOADER_SESSIONS} AND wait_event_type = 'Lock'"
                )
            )

            with silent(server.port):
                silent_since = time.monotonic()
                fill_spool(idle_spool, results(10, "meanwhile"))
                daemon.wait_for(WAITING, timeout_s=NOTICED_S)
                code = drain.wait(silent_since + DRAIN_S + NOTICED_S - time.monotonic())

            idle.wait_for_rows(20)
            assert daemon.alive
            assert code == UNAVAILABLE
            assert waiting.drain().code == 0
            assert waiting.rows() == 10
            connection.invalidate()
        vanished.dispose()
