"""Programs of two neighbouring schema versions and one database: docs/upgrade.md.

The old program is the checkout; the new one has a made-up version 0002, see `next_version`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.program.command import CONFIG
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services.postgres import fresh_database
from tests.services.process import wait_until
from tests.support.commands import Workplace
from tests.support.conservation import consumed, key_of, numbered
from tests.support.consumer.faults import SHORT_WAITS, WAITING
from tests.support.database.dialects import only_on
from tests.support.database.next_version import write_next_program
from tests.support.page import Page, shell
from tests.support.reports.database import PROFILE
from tests.support.reports.stored import query

PAGE = Page("docs/upgrade.md")
(CURRENT,) = PAGE.texts("sh", "Upgrade without stopping")
(UPGRADE,) = PAGE.texts("sh", "Upgrade to an additive version")
COMPATIBLE = "this program wants {}: compatible (additive)"
WHEN_ALL = "run `sam-db upgrade` when all programs are updated"
DAY = "2026-11-18"


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Workplace:
    """The programs of version 0001, and their database without a schema."""
    if request.param == "sqlite":
        database = f"sqlite:///{tmp_path / 'sam.db'}"
    else:
        database = fresh_database(request.getfixturevalue("postgres"))
    return Workplace(
        tmp_path, broker=f"spool://{tmp_path / 'spool'}", database=database
    ).write_configuration()


def next_of(old: Workplace, **version: object) -> Workplace:
    """The programs of version 0002 in the same place."""
    path = write_next_program(old.directory / "next", **version)
    return replace(old, environment={"PYTHONPATH": path})


def contact(number: int, **more: str) -> Message:
    lines = {
        "siteName": f"SITE-{number}",
        "contact": f"Person {number}",
        "timestamp": f"{DAY}T00:00:00Z",
        **more,
    }
    return new_message("siteContact", "".join(f"{k}: {v}\n" for k, v in lines.items()) + "EOT\n")


def notice(number: int) -> Message:
    return new_message("siteNotice", f"siteName: SITE-{number}\nnotice: n{number}\nEOT\n")


def publish(programs: Workplace, *messages: Message) -> None:
    queue = DirectoryQueue(programs.directory / "spool")
    for message in messages:
        queue.add(message)


def values(programs: Workplace, statement: str) -> list[object]:
    return [value for row in query(programs.database, statement) for value in row.values()]


def test_old_programs_work_with_the_new_schema(old: Workplace) -> None:
    old.succeed("sam-db", "upgrade")
    new = next_of(old)
    assert new.succeed("sam-db", "upgrade", "--json").json["applied"] == ["0002"]
    publish(old, contact(1), notice(1), *numbered("example", range(3)))

    checked = old.succeed("sam-db", "check", "--json").json
    assert checked["problems"] == []
    assert COMPATIBLE.format("0001") in checked["notes"][0]
    assert COMPATIBLE.format("0001") in shell(old, CURRENT).out
    assert old.succeed("sam-db", "upgrade", "--json").json["applied"] == []
    repaired = old.run("sam-db", "repair")
    assert (repaired.code, "0002" in repaired.err) == (CONFIG, True)
    drained = old.succeed("sam-consume", "run", "--drain")
    assert COMPATIBLE.format("0001") in drained.err
    old.succeed("sam-report", "now")
    assert values(old, "SELECT count(*) FROM metricOutput") == [3]
    assert values(old, "SELECT notice FROM siteNotice") == ["n1"]
    assert values(old, "SELECT phone FROM siteContact") == [None]
    assert values(old, "SELECT count(*) FROM dead_letter") == [0]
    assert new.succeed("sam-db", "check").err == ""  # nothing was recreated in its old form


def test_new_programs_work_with_the_old_schema(old: Workplace) -> None:
    old.succeed("sam-db", "upgrade")
    new = next_of(old)
    publish(old, contact(1, phone="+41"), *numbered("example", range(3)))

    checked = new.succeed("sam-db", "check")
    assert COMPATIBLE.format("0002") in checked.err
    assert WHEN_ALL in checked.err
    assert new.succeed("sam-db", "current", "--json").json["compatible"] is True
    assert new.run("sam-db", "repair").code == CONFIG
    new.succeed("sam-consume", "run", "--drain")
    new.succeed("sam-report", "now")
    assert values(old, "SELECT count(*) FROM metricOutput") == [3]
    assert values(old, "SELECT contact FROM siteContact") == ["Person 1"]
    assert values(old, "SELECT count(*) FROM dead_letter") == [0]
    assert old.succeed("sam-db", "check").err == ""


@contextmanager
def publishing(programs: Workplace) -> Iterator[list[Message]]:
    """Publish results, every tenth of them bad, and contacts, until the block ends."""
    published: list[Message] = []
    stopping = threading.Event()

    def run() -> None:
        for number in count():
            status = "OK" if number % 10 else "FINE"
            batch = [*numbered("load", [number], metricStatus=status), contact(number)]
            publish(programs, *batch)
            published.extend(batch)
            if stopping.wait(0.01):
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield published
    finally:
        stopping.set()
        thread.join()


def test_a_daemon_continues_through_an_upgrade_and_loses_nothing(old: Workplace) -> None:
    old.succeed("sam-db", "upgrade")
    new = next_of(old, hold_s=2.0)
    login = old.clean_environment(["sam-consume"]).get("SAM_DATABASE_URL", old.database)
    waits = SHORT_WAITS[login.partition("+")[0].partition(":")[0]]
    daemon = replace(old, environment={"SAM_DATABASE_URL": f"{login}?{waits}"})
    spool, log = DirectoryQueue(old.directory / "spool"), old.directory / "running.log"
    spool.path.mkdir()
    with daemon.running("sam-consume", "run") as process:
        with publishing(old) as published, ThreadPoolExecutor() as beside:
            wait_until(lambda: values(old, "SELECT count(*) FROM siteContact") > [20], 30)
            reporting = beside.submit(report, old)
            upgraded = shell(new, UPGRADE)
            assert upgraded.code == 0, str(upgraded)
            publish(old, contact(-1, phone="+41"), notice(-1))
            rows = len(values(old, "SELECT 1 FROM siteContact"))
            wait_until(lambda: values(old, "SELECT count(*) FROM siteContact") > [rows + 20], 30)
            reporting.result()
        wait_until(lambda: spool.count() == 0, 30)
        assert process.poll() is None
    assert WAITING in log.read_text()
    assert "continuing" in log.read_text()
    results = [message for message in published if message.message_class == "metricOutput"]
    consumed(
        accepted=[key_of(message.body) for message in results],
        rows=values(old, "SELECT summaryData FROM metricOutput"),
        dead_letters=[key_of(bytes(body)) for body in values(old, "SELECT body FROM dead_letter")],
    )
    contacts = len(published) - len(results) + 1
    assert values(old, "SELECT count(*) FROM siteContact") == [contacts]
    assert values(old, "SELECT phone FROM siteContact WHERE phone IS NOT NULL") == ["+41"]
    assert values(old, "SELECT notice FROM siteNotice") == ["n-1"]
    assert values(old, "SELECT DISTINCT reason FROM dead_letter") == ["bad-status"]


def report(programs: Workplace) -> None:
    profile = programs.write("p.toml", PROFILE)
    programs.succeed("sam-report", "run", "--profile", profile, "--day", DAY)


@only_on("postgresql", "old")
def test_a_daemon_ends_when_the_schema_becomes_one_that_it_does_not_support(old: Workplace) -> None:
    old.succeed("sam-db", "upgrade")
    new = next_of(old, additive=False)
    assert new.run("sam-db", "check").code == CONFIG
    with old.running("sam-consume", "run") as process:
        publish(old, contact(1))
        wait_until(lambda: values(old, "SELECT count(*) FROM siteContact") == [1], 30)

        new.succeed("sam-db", "upgrade")
        publish(old, contact(2))

        assert process.wait(60) == CONFIG
    assert values(old, "SELECT siteName FROM siteContact") == ["SITE-1"]
    assert DirectoryQueue(old.directory / "spool").count() == 1
