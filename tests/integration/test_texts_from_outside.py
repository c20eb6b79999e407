"""Control characters in texts from outside reach no terminal, log or page, and end no line.

They are put into everything that a stranger can choose, and every command that prints it is run.
"""

from __future__ import annotations

import json
import re
import sqlite3
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sam_pipeline.consumer.core import drain
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.pages.writer import site_page
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.http_stand_in import HttpStandIn
from tests.support.builders import metric_message, metric_result
from tests.support.database.with_schema import with_schema
from tests.support.invoke import invoke
from tests.support.reports.pages import BAD_SITE, MARKED_DAY, fill

EVIL = "evil\x1b[31m\a\b\x9b2J\x7f\u202e\u2066\u2028\x85\v\r\nFORGED: line"
NAME = EVIL.replace("/", "")
BARE = re.sub(r"\s", "", EVIL)
"""For places where a blank or a line end can't be."""
ESCAPED = json.dumps(EVIL)[1:-1]
RESULT = ("result", "--metric", "m", "--status", "OK", "--host", "h", "--flavour", "CE")


@dataclass
class Seen:
    """Runs the programs in this process and checks all that they print and log."""

    config: Path

    def __call__(self, program: str, *arguments: str, config: Path | None = None) -> str:
        answer = invoke(program, "--config", config or self.config, *arguments)
        require_harmless(answer.out + answer.err, arguments)
        return answer.out + answer.err


def require_harmless(text: str, source: object) -> None:
    for character in set(text) - set("\n\t"):
        category = unicodedata.category(character)
        harmful = category in ("Cc", "Cs", "Zl", "Zp") or "\u202a" <= character <= "\u202e"
        assert not harmful and not "\u2066" <= character <= "\u2069", (source, character, text)
    # An indented line continues an error with several lines.
    assert not re.search(r"^(?!  )\W*FORGED", text, re.MULTILINE), (source, text)


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """With a configuration, an empty SQLite database and an empty spool."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(drain, "SILENCE_S", 0.2)
    config = tmp_path / "sam.toml"
    config.write_text(
        f'[database]\nurl = "sqlite:///{tmp_path}/sam.db"\n'
        f'[publisher]\nspool = "{tmp_path}/spool"\ntimeout_s = 2\n'
        f'[consumer]\nname = "c"\nbrokers = ["spool://{tmp_path}/in"]\n'
    )
    config.chmod(0o600)
    with_schema(f"sqlite:///{tmp_path}/sam.db").dispose()
    return Seen(config)


ARGUMENTS = """
sam-publish EVIL
sam-publish --EVIL
sam-publish RESULT --timeout EVIL
sam-publish RESULT --class EVIL
sam-publish RESULT --destination EVIL
sam-publish RESULT --header x=EVIL
sam-publish RESULT --broker activemq-rest+http://127.0.0.1:9/BARE
sam-publish RESULT --broker spool:///proc/nowhere/EVIL --no-spool
sam-publish RESULT --status EVIL
sam-publish RESULT --host EVIL
sam-publish send EVIL
sam-publish run --metric EVIL -- /proc/nowhere/EVIL
sam-publish spool show EVIL
sam-consume EVIL
sam-consume run --drain --timeout EVIL
sam-consume dead-letter list --reason EVIL --older-than EVIL
sam-consume dead-letter edit 1 --header EVIL
check_sam_consumer --EVIL
sam-db EVIL
sam-db import records /proc/nowhere/EVIL
sam-db import csv --class EVIL x
sam-db import gocdb --window EVIL
sam-db downtime cancel EVIL
sam-report EVIL
sam-report profile check /proc/nowhere/EVIL
sam-report now --report EVIL
sam-report show --report EVIL --day 2026-11-01
sam-report exclusion remove EVIL --reason x
"""


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_arguments(seen: Seen, log_format: str) -> None:
    for line in ARGUMENTS.replace("RESULT", " ".join(RESULT)).strip().splitlines():
        words = [word.replace("EVIL", EVIL).replace("BARE", BARE) for word in line.split()]
        assert "evil" in seen(*words, "-v", "--log-format", log_format), line


CONFIGURED = {
    "sam-publish": ("publisher", "brokers", ("check",)),
    "sam-consume": ("consumer", "brokers", ("check",)),
    "sam-db": ("database", "url", ("current",)),
    "sam-report": ("report", "profiles", ("now",)),
    "check_sam_consumer": ("consumer", "name", ()),
}


@pytest.mark.parametrize("program", CONFIGURED)
def test_a_configuration(
    seen: Seen, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section, key, command = CONFIGURED[program]
    path = tmp_path / NAME
    for document in (
        f'"{ESCAPED}" = 1',
        f'[{section}]\n"{ESCAPED}" = 1\n{key} = "{ESCAPED}"',
        f"[{EVIL}",
    ):
        path.write_text(document)
        path.chmod(0o600)
        seen(program, *command, config=path)

    for name, value in {
        "SAM_PUBLISHER_SPOOL": f"{tmp_path}/{NAME}",
        "SAM_PUBLISHER_BROKERS": EVIL,
        "SAM_CONSUMER_BROKERS": f"stomp://{BARE}",
        "SAM_DATABASE_URL": f"sqlite:////proc/nowhere/{NAME}",
        "http_proxy": f"http://{BARE}",
    }.items():
        monkeypatch.setenv(name, value)
    seen(program, *command)


def evil_messages() -> Iterator[Message]:
    """What a stranger may put into a spool, or send through a broker."""
    now = format_time(datetime.now(UTC))
    records: list[Mapping[str, object]] = [{**metric_result(timestamp=now), EVIL: "x"}]
    records += [{**metric_result(timestamp=now), name: EVIL} for name in metric_result()]
    is_json = {"content-type": "application/json"}
    yield Message({"messageClass": "metricOutput", **is_json}, json.dumps(records).encode())
    yield Message({"messageClass": EVIL, **is_json}, b"{}")
    yield Message({"messageClass": "metricOutput", "samMessageId": EVIL}, BARE.encode())
    yield Message({"messageClass": "metricOutput", EVIL: EVIL}, b"\xff" + BARE.encode())
    yield metric_message(destination=f"/topic/{EVIL}", recordCount=EVIL, samFormat=EVIL)


def test_messages_in_the_spool_of_a_publisher(seen: Seen, tmp_path: Path) -> None:
    spool = DirectoryQueue(tmp_path / "spool")
    for message in evil_messages():
        spool.add(message)
    broken = next((tmp_path / "spool").iterdir())
    (broken / "0123456789abcd").write_text(f'{{"header": {{"{ESCAPED}": 1}}, "body": "x"}}')
    (broken / NAME).write_text("{}")

    for arguments in (("list",), ("status",), ("verify",), ("drain",), ("repair",), ("verify",)):
        for options in ((), ("--json", "-v")):
            seen("sam-publish", "spool", *arguments, *options)
    ids = list(spool.names())
    assert ids
    for options in ((), ("--json",)):
        assert "evil" in seen("sam-publish", "spool", "show", *ids, *options)


def test_the_answers_of_brokers(seen: Seen) -> None:
    error = f"{BARE}\\r\\nFORGED\\nFORGED"
    brokers = [
        FakeBroker(refuses_login=error),
        FakeBroker(server=f"ActiveMQ/{BARE}", rejects=lambda frame: error),
        FakeBroker(version=BARE),
        FakeBroker(forbids_subscribing=error, explains=EVIL),
        FakeBroker(greeting=EVIL.encode() * 3 + b"\0"),
        FakeBroker(greeting=f"{BARE}\n{BARE}:{BARE}\n\n\0".encode()),
    ]
    for broker in brokers:
        with broker:
            for log_format in ("text", "json"):
                options = ("--broker", broker.url, "--log-format", log_format, "-v")
                seen("sam-publish", *RESULT, *options)
            seen("sam-publish", "check", "--connect", *options)
            config = seen.config.with_name("other.toml")
            config.write_text(
                seen.config.read_text().replace("spool://", f'{broker.url}", "spool://')
                + '[[consumer.subscription]]\ndestination = "/queue/x"\n'
            )
            config.chmod(0o600)
            seen("sam-consume", "run", "--drain", "--timeout", "0.5", config=config)
    lines = (
        f"HTTP/1.1 500 {BARE}\r\nLocation: {BARE}\r\nContent-Length: {len(EVIL.encode())}\r\n\r\n"
    )
    for status in ("500", "400", "302", "200"):
        answer = lines.replace("500", status, 1).encode() + EVIL.encode()
        with HttpStandIn(lambda asked, answer=answer: answer) as server:
            for kind in ("activemq-rest+http", "rabbitmq-api+http"):
                url = f"{kind}://127.0.0.1:{server.port}/a/b"
                seen("sam-publish", *RESULT, "--broker", url, "-v")


def test_the_output_of_a_plugin_is_passed_on_and_nothing_else(seen: Seen, tmp_path: Path) -> None:
    plugin = tmp_path / NAME.replace(":", "")
    plugin.write_text(f"#!/bin/sh\nprintf '%s' '{EVIL}'; exit 9\n")
    plugin.chmod(0o700)

    answer = invoke("sam-publish", "--config", seen.config, "run", "--", plugin)

    assert answer.out == EVIL  # byte for byte, as the monitoring system expects
    assert "evil" in answer.err
    require_harmless(answer.err, "run")


def test_messages_that_a_consumer_loads(seen: Seen, tmp_path: Path) -> None:
    spool = DirectoryQueue(tmp_path / "in")
    for message in evil_messages():
        spool.add(message)

    assert "ignored keys" in seen("sam-consume", "run", "--drain", "--timeout", "2", "-v")
    for command in (
        ("list", "--state", "any"),
        ("show", "--all"),
        ("replay", "--all"),
        ("edit", "1", "--body", f"/proc/nowhere/{EVIL}"),
        ("edit", "1", "--header", f"x={EVIL}", "--replay"),
        ("drop", "--all"),
        ("list", "--state", "any"),
    ):
        for options in ((), ("--json",)):
            seen("sam-consume", "dead-letter", *command, *options)
    seen("sam-db", "classes")


REPORTS = [
    *(("show", "--level", level) for level in ("site", "endpoint", "group", "metric")),
    *(("trends", "--level", level) for level in ("site", "metric")),
    *(("incidents", "--by", thing) for thing in ("incident", "site", "group", "cause")),
]


def test_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    grid = fill(f"sqlite:///{tmp_path}/sam.db", tmp_path)
    grid.dispose()
    site = spoil(tmp_path / "sam.db")
    config = tmp_path / "sam.toml"
    config.write_text(f'[database]\nurl = "sqlite:///{tmp_path}/sam.db"\n')
    config.chmod(0o600)
    seen = Seen(config)
    period = ("--from", "2026-10-28", "--to", "2026-11-04")

    for command in REPORTS:
        for options in ((), ("--format", "json")):
            assert "evil" in seen("sam-report", *command, *period, *options)
    for options in ((), ("--group",), ("--ticket",), ("--json",), ("--host", EVIL)):
        output = seen("sam-report", "explain", "--site", site, "--day", str(MARKED_DAY), *options)
        assert "evil" in output
    for command in (("now",), ("exclusion", "list", "--all"), ("seal", "--list")):
        for options in ((), ("--json",)):
            seen("sam-report", *command, *options)
    seen("sam-report", "now", "--site", site)
    for day in (str(MARKED_DAY), "2026-11-04"):
        assert "evil" in seen("sam-report", "explain", "--site", EVIL, "--day", day)
    out = tmp_path / NAME
    for format in ("csv", "json", "argo", "openmetrics", "parquet"):
        seen("sam-report", "export", "--format", format, "--out", f"{out}/{format}", *period)
    seen("sam-report", "site", "--out", str(out), *period)
    pages = list(out.rglob("*.html"))
    assert out / "test" / "2026-11" / site_page(site) in pages
    for page in pages:
        require_harmless(page.read_text(), page)


NAMED = (BAD_SITE, "ada", "boss", "nightly", "late results", "results changed", "FEDERATION-00")
NAMED += ("m1", "power cut", "its clock was wrong", "new <kernel>", "wn1")


def spoil(file: Path) -> str:
    """Put the text into names and free texts of a database, and return a site's new name."""
    connection = sqlite3.connect(file)
    connection.create_function("spoiled", 1, spoiled)
    connection.execute("PRAGMA foreign_keys = OFF")
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    for (table,) in connection.execute(tables).fetchall():
        for _, column, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
            if column != "profile":  # which is checked when it is read
                where = f"typeof({column}) = 'text'"
                connection.execute(f"UPDATE {table} SET {column} = spoiled({column}) WHERE {where}")
    connection.commit()
    connection.close()
    return f"{BAD_SITE}{EVIL}"


def spoiled(text: str) -> str:
    if text.startswith(("{", "[")):
        for plain in NAMED:
            text = text.replace(json.dumps(plain), json.dumps(f"{plain}{EVIL}"))
        return re.sub(r'\.example\.org(?=")', f".example.org{ESCAPED}".replace("\\", r"\\"), text)
    is_free = text.startswith("m-") or text.endswith((".example.org", "no answer"))
    return f"{text}{EVIL}" if is_free or text in NAMED else text
