"""Programs of two neighbouring schema versions and one database: docs/upgrade.md.

The old program is the checkout; the new one has a made-up version 0002, see `next_version`. It runs
as a process, because its files are elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.program.command import CONFIG, OK
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.commands import Answer, Workplace
from tests.support.conservation import consumed, key_of, numbered
from tests.support.consumer.faults import SHORT_WAITS, WAITING
from tests.support.database.next_version import write_next_program
from tests.support.database.with_schema import with_schema
from tests.support.reports.database import PROFILE
from tests.support.reports.stored import query
from tests.support.waiting import eventually

COMPATIBLE = "this program wants {}: compatible (additive)"
DAY = "2026-11-18"


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Workplace:
    """The programs of version 0001 and their database."""
    url = f"sqlite:///{tmp_path / 'sam.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
    with_schema(url).dispose()
    return Workplace(tmp_path, f"spool://{tmp_path / 'spool'}", url).write_configuration()


def next_of(old: Workplace, **version: Any) -> Workplace:
    """The programs of version 0002 in the same place."""
    path = write_next_program(old.directory / "next", **version)
    return replace(old, environment={"PYTHONPATH": path})


def succeed(new: Workplace, *command: str) -> Answer:
    answer = new.process(*command)
    assert answer.code == OK, str(answer)
    return answer


def problems(answer: Answer) -> list[str]:
    """Those of the schema; the server of the tests may lose data in a crash, which is one, too."""
    found = [problem["problem"] for problem in answer.json["problems"]]
    return [problem for problem in found if "crash" not in problem]


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


def values(programs: Workplace, statement: str) -> list[Any]:
    return [value for row in query(programs.database, statement) for value in row.values()]


def test_programs_of_both_versions_work_before_and_after_the_upgrade(old: Workplace) -> None:
    new = next_of(old)
    publish(old, contact(1, phone="+41"), *numbered("example", range(3)))
    checked = new.process("sam-db", "check", "--json")
    assert problems(checked) == []
    assert COMPATIBLE.format("0002") in checked.json["notes"][0]
    assert "run `sam-db upgrade` when all programs are updated" in checked.json["notes"][0]
    assert new.process("sam-db", "repair").code == CONFIG
    succeed(new, "sam-consume", "run", "--drain")
    succeed(new, "sam-report", "now")
    assert values(old, "SELECT contact FROM siteContact") == ["Person 1"]
    assert problems(old.run("sam-db", "check", "--json")) == []

    assert succeed(new, "sam-db", "upgrade", "--json").json["applied"] == ["0002"]
    publish(old, contact(2), notice(2), *numbered("later", range(3)))
    checked = old.run("sam-db", "check", "--json")
    assert problems(checked) == []
    assert COMPATIBLE.format("0001") in checked.json["notes"][0]
    current = old.succeed("sam-db", "version", "--json").json
    assert (current["version"], current["compatible"]) == ("0002", True)
    assert old.succeed("sam-db", "upgrade", "--json").json["applied"] == []
    repaired = old.run("sam-db", "repair")
    assert (repaired.code, "0002" in repaired.err) == (CONFIG, True)
    drained = old.succeed("sam-consume", "run", "--drain")
    assert COMPATIBLE.format("0001") in drained.err
    old.succeed("sam-report", "now")

    assert values(old, "SELECT count(*) FROM metricOutput") == [6]
    assert values(old, "SELECT notice FROM siteNotice") == ["n2"]
    assert values(old, "SELECT phone FROM siteContact") == [None, None]
    assert values(old, "SELECT count(*) FROM dead_letter") == [0]
    assert problems(new.process("sam-db", "check", "--json")) == []  # nothing has its old form


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
    new = next_of(old, hold_s=2.0)
    login = old.clean_environment(["sam-consume"]).get("SAM_DATABASE_URL", old.database)
    waits = SHORT_WAITS[login.partition("+")[0].partition(":")[0]]
    daemon = replace(old, environment={"SAM_DATABASE_URL": f"{login}?{waits}"})
    spool, log = DirectoryQueue(old.directory / "spool"), old.directory / "running.log"
    spool.path.mkdir()
    profile = old.write("p.toml", PROFILE)
    report = ("sam-report", "run", "--profile", profile, "--day", DAY)

    def contacts() -> int:
        return int(values(old, "SELECT count(*) FROM siteContact")[0])

    with daemon.running("sam-consume", "run") as process:
        with publishing(old) as published, ThreadPoolExecutor() as beside:
            eventually(lambda: contacts() > 20)
            reported = beside.submit(old.process, *report)
            succeed(new, "sam-db", "upgrade")
            publish(old, contact(-1, phone="+41"), notice(-1))
            rows = contacts()
            eventually(lambda: contacts() > rows + 20)
            assert reported.result().code == OK, str(reported.result())
        eventually(lambda: spool.count() == 0)
        assert process.poll() is None
    assert WAITING in log.read_text()
    assert "continuing" in log.read_text()
    results = [message for message in published if message.message_class == "metricOutput"]
    consumed(
        accepted=[key_of(message.body) for message in results],
        rows=values(old, "SELECT summaryData FROM metricOutput"),
        dead_letters=[key_of(bytes(body)) for body in values(old, "SELECT body FROM dead_letter")],
    )
    assert contacts() == len(published) - len(results) + 1
    assert values(old, "SELECT phone FROM siteContact WHERE phone IS NOT NULL") == ["+41"]
    assert values(old, "SELECT notice FROM siteNotice") == ["n-1"]
    assert values(old, "SELECT DISTINCT reason FROM dead_letter") == ["bad-status"]


@pytest.mark.parametrize("old", ["postgresql"], indirect=True)
def test_a_daemon_ends_when_the_schema_becomes_one_that_it_does_not_support(old: Workplace) -> None:
    new = next_of(old, additive=False)
    assert new.process("sam-db", "check").code == CONFIG
    with old.running("sam-consume", "run") as process:
        publish(old, contact(1))
        eventually(lambda: values(old, "SELECT count(*) FROM siteContact") == [1])

        succeed(new, "sam-db", "upgrade")
        publish(old, contact(2))

        assert process.wait(60) == CONFIG
    assert values(old, "SELECT siteName FROM siteContact") == ["SITE-1"]
    assert DirectoryQueue(old.directory / "spool").count() == 1
