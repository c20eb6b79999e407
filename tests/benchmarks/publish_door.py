"""How fast `sam-publish send` fills the database through an HTTP door, compared with STOMP.

    python -m tests.benchmarks.publish_door [--records N] [--rounds R]

The same command sends new records to a door of `sam-consume`, and to a private ActiveMQ from which
the same consumer reads. It stores both in a private PostgreSQL. What counts is the time from the
start of the command until every record is a row. The roads take turns, so that other load affects
both, and the median of the ratios of each turn is compared, for one record per message and for
packed ones.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from sqlalchemy import text

from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import make_engine
from tests.services.activemq import running_activemq
from tests.services.postgres import fresh_database, running_postgres
from tests.support.builders import NOW, metric_result
from tests.support.consumer.daemon import Subscription, site_of
from tests.support.consumer.door import listening, new_door

BOUND = 0.5
TIMEOUT_S = 300
POLL_S = 0.02
FIRST = NOW - timedelta(days=1)
SAM_PUBLISH = Path(sys.executable).with_name("sam-publish")
DESTINATION = "/queue/bench"
FORMS = {"one record per message": ["--one-per-message"], "100 records per message": []}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=10_000, help="of a turn (default: 10000)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default: 5)")
    args = parser.parse_args(argv)
    with TemporaryDirectory() as name, roads(Path(name)) as (stomp, door, rows):
        load = os.getloadavg()[0]
        print(f"{args.records} records per turn; {args.rounds} turns of each road")
        print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f} before")
        good = []
        turns = itertools.count()
        for form, options in FORMS.items():
            seconds: list[tuple[float, ...]] = []
            for turn in itertools.islice(turns, args.rounds + 1):
                taken_s = []
                for road, url in (("stomp", stomp), ("door", door)):
                    file = records_file(Path(name), road, turn, args.records)
                    taken_s.append(seconds_until_stored(file, url, options, rows))
                seconds.append(tuple(taken_s))
            good.append(print_ratio(form, args.records, seconds[1:]))  # the first one warms up
    return 0 if all(good) else 1


@contextmanager
def roads(directory: Path) -> Iterator[tuple[str, str, Callable[[], int]]]:
    """The URLs of broker and door, and a function that counts all results."""
    door = new_door()
    with running_activemq() as broker, running_postgres() as postgres:
        database = fresh_database(postgres)
        brokers = [door.listen_url, broker.url]
        site = site_of(directory, brokers, Subscription(DESTINATION), database=database)
        engine = make_engine(database)

        def rows() -> int:
            with engine.connect() as connection:
                return int(connection.scalar(text("SELECT count(*) FROM metric_result")) or 0)

        with listening(site, door) as daemon:
            daemon.wait_until_subscribed(broker.url)
            yield broker.url, door.url, rows
        engine.dispose()


def records_file(directory: Path, road: str, turn: int, count: int) -> Path:
    """New results of the same metrics in each turn."""
    file = directory / f"{road}-{turn}"
    moment = format_time(FIRST + turn * timedelta(minutes=1))
    records = (
        metric_result(
            hostName=f"ce{number % 1000:03}.example.org",
            metricName=f"org.example.{road}-{number // 1000}",
            timestamp=moment,
        )
        for number in range(count)
    )
    file.write_text("".join(map(write_wlcg, records)))
    return file


def seconds_until_stored(
    file: Path, url: str, options: Sequence[str], rows: Callable[[], int]
) -> float:
    expected = rows() + file.read_text().count("EOT\n")
    command = [str(SAM_PUBLISH), "send", "--no-spool", *options, str(file), "--broker", url]
    command += ["--destination", DESTINATION, "--timeout", str(TIMEOUT_S)]
    with TemporaryDirectory() as home:  # without the configuration and state of other runs
        environment = {"PATH": os.environ["PATH"], "HOME": home}
        began = time.perf_counter()
        subprocess.run(
            command,
            env=environment,
            cwd=home,
            check=True,
            timeout=TIMEOUT_S,
            stdout=subprocess.DEVNULL,
        )
        while rows() < expected:
            if time.perf_counter() - began > TIMEOUT_S:
                raise SystemExit(f"{url}: {expected - rows()} records did not arrive")
            time.sleep(POLL_S)
        return time.perf_counter() - began


def print_ratio(form: str, records: int, seconds: Sequence[tuple[float, ...]]) -> bool:
    """Print the rates and their ratio; return whether it is within its bound."""
    by_stomp, by_door = zip(*seconds, strict=True)
    ratio = median(stomp / door for stomp, door in seconds)
    print(
        f"  {form:24} STOMP {records / median(by_stomp):7.0f} records/s,"
        f" door {records / median(by_door):7.0f}: {ratio:5.2f}  bound >= {BOUND}",
        flush=True,
    )
    return ratio >= BOUND


if __name__ == "__main__":
    sys.exit(main())
