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
from collections.abc import Sequence
from pathlib import Path

from tests.demo.road import Demo
from tests.demo.shell import StepFailed
from tests.services import ServiceMissing
from tests.services.process import ServerDied

DIRECTORY = Path("demo")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description="The whole pipeline.")
    full = "through a proxy, ActiveMQ and PostgreSQL"
    parser.add_argument("--full", action="store_true", help=full)
    began = time.monotonic()
    try:
        full_demo() if parser.parse_args(argv).full else embedded_demo()
    except (StepFailed, ServiceMissing, ServerDied) as reason:
        print(f"\nThe demo ended early: {reason}", file=sys.stderr)
        return 1
    print(f"\n{time.monotonic() - began:.0f} s in total")
    return 0


def embedded_demo() -> None:
    """Run without servers: a directory is the broker, a file the database."""
    print("From probes to a report: a directory as the broker, SQLite, Spark on this machine.")
    below = DIRECTORY.resolve()
    Demo(DIRECTORY, f"spool://{below / 'spool'}", f"sqlite:///{below / 'sam.db'}", {}).walk()


def full_demo() -> None:
    """Run with real servers, whose data is lost at the end, so that every run is a first one."""
    from tests.services.activemq import running_activemq
    from tests.services.postgres import as_role, fresh_database, running_postgres
    from tests.services.tinyproxy import running_tinyproxy

    print("From probes to a report: ActiveMQ, a proxy, PostgreSQL, Spark on this machine.")
    directory = DIRECTORY / "full"
    (directory / "first-day").unlink(missing_ok=True)
    with running_activemq() as broker, running_postgres() as server, running_tinyproxy() as proxy:
        owner = fresh_database(server)
        logins = {
            "sam-db": owner,
            "sam-consume": as_role(owner, "loader"),
            "sam-report run": as_role(owner, "reporter"),
        }
        Demo(directory, broker.url, as_role(owner, "reader"), logins, proxy.url).walk()
        if not proxy.asked:
            raise StepFailed("no request went through the proxy")
        print(f"{len(proxy.asked)} requests went through the proxy")


if __name__ == "__main__":
    sys.exit(main())
