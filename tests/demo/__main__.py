"""The whole pipeline on this machine.

    python -m tests.demo           spool, SQLite, Spark: no server
    python -m tests.demo --full    ActiveMQ behind a message servlet, a proxy, PostgreSQL, Spark:
                                   private servers, stopped at the end

All files are below `demo/` in the current directory.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.demo import road
from tests.demo.shell import Shell, StepFailed
from tests.demo.summary import print_summary
from tests.services import ServiceMissing
from tests.services.process import ServerDied

DIRECTORY = Path("demo")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description="The whole pipeline.")
    parser.add_argument(
        "--full", action="store_true", help="through a proxy, ActiveMQ and PostgreSQL"
    )
    try:
        full_demo() if parser.parse_args(argv).full else embedded_demo()
    except (StepFailed, ServiceMissing, ServerDied) as reason:
        print(f"\nThe demo ended early: {reason}", file=sys.stderr)
        return 1
    return 0


def embedded_demo() -> None:
    """Run without servers: a directory is the broker, a file the database."""
    directory = DIRECTORY.resolve()
    demo = road.prepare(
        DIRECTORY,
        broker=f"spool://{directory / 'spool'}",
        database=f"sqlite:///{directory / 'sam.db'}",
    )
    print("From probes to a report: a directory as the broker, SQLite, Spark on this machine.")
    _walk(demo, logins={})


def full_demo() -> None:
    """Run with real servers, whose data is lost at the end, so that every run is a first one."""
    from tests.services.activemq import running_activemq
    from tests.services.postgres import as_role, fresh_database, running_postgres
    from tests.services.tinyproxy import running_tinyproxy

    print(
        "From probes to a report: ActiveMQ, a proxy, PostgreSQL, Spark on this machine.", flush=True
    )
    road.forget(DIRECTORY / "full")
    with running_activemq() as broker, running_postgres() as server, running_tinyproxy() as proxy:
        owner = fresh_database(server)
        demo = road.prepare(DIRECTORY / "full", broker.url, as_role(owner, "reader"), proxy.url)
        logins = {
            "sam-db": owner,
            "sam-consume": as_role(owner, "loader"),
            "sam-report run": as_role(owner, "reporter"),
        }
        _walk(demo, logins)
        if not proxy.asked:
            raise StepFailed("no request went through the proxy")
        print(f"{len(proxy.asked)} requests went through the proxy")


def _walk(demo: road.Demo, logins: Mapping[str, str]) -> None:
    began = time.monotonic()
    shell = Shell(
        {
            "SAM_CONFIG": str(demo.directory / "sam.toml"),
            "XDG_STATE_HOME": str(demo.directory.resolve() / "state"),
        },
        logins,
    )
    print(f"To type a command yourself, first:\n   {shell.exports()}")
    road.apply_schema(shell)
    with road.servlet(demo, shell):
        road.publish_week(demo, shell)
        road.run_plugins(demo, shell)
        road.load(demo, shell)
        road.load_again(demo, shell)
    road.import_history(demo, shell)
    road.report(demo, shell)
    road.draw_pages(demo, shell)
    print_summary(demo, shell)
    print(f"\n{time.monotonic() - began:.0f} s in total")


if __name__ == "__main__":
    sys.exit(main())
