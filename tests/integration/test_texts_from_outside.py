"""Control characters in texts from outside reach no terminal, log or page, and end no line.

They are put into everything that a stranger can choose, and every command that prints it is run.
"""

from __future__ import annotations

import json
import logging
import re
import sqlite3
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sam_pipeline.consumer import cli as consume
from sam_pipeline.consumer.commands import nagios
from sam_pipeline.consumer.monitoring.snapshot import BrokerState
from sam_pipeline.consumer.monitoring.state_file import write_state
from sam_pipeline.publisher import cli as publish
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs import cli as report
from sam_pipeline.spark_jobs.pages.writer import site_page
from sam_pipeline.sql import cli as db
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.database.version import upgrade
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.http_stand_in import HttpStandIn
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.snapshot import snapshot
from tests.support.reports.pages import BAD_SITE, MARKED_DAY, fill

EVIL = "evil\x1b[31m\a\b\x9b2J\x7f\u202e\u2066\u2028\x85\v\r\nFORGED: line"
NAME = EVIL.replace("/", "")
BARE = re.sub(r"\s", "", EVIL)
"""For places where a blank or a line end can't be."""
ESCAPED = json.dumps(EVIL)[1:-1]
RESULT = ("result", "--metric", "m", "--status", "OK", "--host", "h", "--flavour", "CE")

Main = Callable[[list[str]], int]


@dataclass
class Seen:
    """Runs the programs in this process and checks all that they print and log."""

    capture: pytest.CaptureFixture[str]
    config: Path

    def __call__(self, main: Main, *arguments: str, config: Path | None = None) -> str:
        with suppress(SystemExit):
            main(["--config", str(config or self.config), *arguments])
        output = "\n".join(self.capture.readouterr())
        require_harmless(output, arguments)
        return output


def require_harmless(text: str, source: object) -> None:
    for character in set(text) - set("\n\t"):
        category = unicodedata.category(character)
        harmful = category in ("Cc", "Cs", "Zl", "Zp") or "\u202a" <= character <= "\u202e"
        assert not harmful and not "\u2066" <= character <= "\u2069", (source, character, text)
    # An indented line continues an error with several lines.
    assert not re.search(r"^(?!  )\W*FORGED", text, re.MULTILINE), (source, text)


@pytest.fixture(autouse=True)
def own_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The programs set up logging for this process; afterwards it is as before."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers = handlers
    root.setLevel(level)


@pytest.fixture
def seen(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Seen:
    """With a configuration, an empty SQLite database and an empty spool."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    config = tmp_path / "sam.toml"
    config.write_text(
        f'[database]\nurl = "sqlite:///{tmp_path}/sam.db"\n'
        f'[publisher]\nspool = "{tmp_path}/spool"\ntimeout_s = 2\n'
        f'[consumer]\nname = "c"\nbrokers = ["spool://{tmp_path}/in"]\n'
    )
    config.chmod(0o600)
    engine = make_engine(f"sqlite:///{tmp_path}/sam.db", create=True)
    upgrade(engine)
    engine.dispose()
    return Seen(capfd, config)


@pytest.mark.parametrize(
    ("main", "arguments"),
    [
        *((main, (EVIL,)) for main in (publish.main, consume.main, db.main, report.main)),
        *((main, (f"--{EVIL}",)) for main in (publish.main, nagios.main)),
        (nagios.main, ("--critical-age", EVIL)),
        *(
            (publish.main, (*RESULT, option, EVIL))
            for option in ("--timeout", "--class", "--destination", "--header", "--vo")
        ),
        (publish.main, (*RESULT, "--header", f"x={EVIL}")),
        (publish.main, (*RESULT, "--header", f"{BARE}=x", "--dry-run")),
        (publish.main, (*RESULT, "--broker", f"activemq-rest+http://127.0.0.1:9/{BARE}")),
        (publish.main, (*RESULT, "--broker", f"spool:///proc/nowhere/{EVIL}", "--no-spool")),
        *(
            (publish.main, ("result", *options, name, EVIL))
            for options in [("--metric", "m", "--status", "OK", "--host", "h", "--flavour", "CE")]
            for name in options[::2]
        ),
        (publish.main, ("send", EVIL)),
        (publish.main, ("run", "--metric", EVIL, "--", f"/proc/nowhere/{EVIL}")),
        (publish.main, ("spool", "show", EVIL)),
        (publish.main, ("spool", "list", "--limit", EVIL)),
        (consume.main, ("run", "--drain", "--timeout", EVIL)),
        (consume.main, ("dead-letter", "list", "--reason", EVIL, "--older-than", EVIL)),
        (consume.main, ("dead-letter", "edit", "1", "--header", EVIL)),
        (db.main, ("import", "records", f"/proc/nowhere/{EVIL}")),
        (db.main, ("import", "csv", "--class", EVIL, "x")),
        (db.main, ("import", "csv", "--class", "downtime", f"/proc/nowhere/{EVIL}")),
        (db.main, ("import", "gocdb", "--endpoints", f"/proc/nowhere/{EVIL}")),
        (db.main, ("import", "gocdb", "--window", EVIL)),
        (db.main, ("downtime", "cancel", EVIL)),
        (db.main, ("prune", "--keep-results", EVIL)),
        (db.main, ("sql", "--from", EVIL)),
        (report.main, ("profile", "check", f"/proc/nowhere/{EVIL}")),
        (report.main, ("now", "--site", EVIL)),
        (report.main, ("now", "--report", EVIL)),
        (report.main, ("show", "--day", EVIL)),
        (report.main, ("show", "--report", EVIL, "--day", "2026-11-01")),
        (report.main, ("exclusion", "remove", EVIL, "--reason", "x")),
        (report.main, ("run", "--profile", f"/proc/nowhere/{EVIL}", "--day", "2026-11-01")),
    ],
)
def test_arguments(seen: Seen, main: Main, arguments: tuple[str, ...]) -> None:
    for log_format in ("text", "json"):
        assert "evil" in seen(main, *arguments, "-v", "--log-format", log_format)


@pytest.mark.parametrize("program", [publish.main, consume.main, db.main, report.main, nagios.main])
@pytest.mark.parametrize(
    "document",
    [
        f'"{ESCAPED}" = 1',
        "[{section}]\n" + f'"{ESCAPED}" = 1',
        "[{section}]\n" + f'{{key}} = "{ESCAPED}"',
        "[{section}]\n" + f'{{key}} = ["{ESCAPED}"]',
        f"[{EVIL}",
    ],
    ids=["no section", "unknown key", "text", "list", "no TOML"],
)
def test_a_configuration(seen: Seen, program: Main, document: str, tmp_path: Path) -> None:
    section, command, key = {
        publish.main: ("publisher", ("check",), "brokers"),
        consume.main: ("consumer", ("check",), "brokers"),
        db.main: ("database", ("current",), "url"),
        report.main: ("report", ("now",), "profiles"),
        nagios.main: ("consumer", (), "name"),
    }[program]
    path = tmp_path / NAME
    path.write_text(document.replace("{section}", section).replace("{key}", key))
    path.chmod(0o600)

    seen(program, *command, config=path)


@pytest.mark.parametrize(
    ("program", "command"), [(publish.main, "check"), (consume.main, "check"), (db.main, "current")]
)
def test_the_environment(
    seen: Seen, program: Main, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {
        "SAM_PUBLISHER_TIMEOUT_S": EVIL,
        "SAM_PUBLISHER_SPOOL": f"{tmp_path}/{NAME}",
        "SAM_PUBLISHER_BROKERS": EVIL,
        "SAM_CONSUMER_NAME": EVIL,
        "SAM_CONSUMER_BROKERS": f"stomp://{BARE}",
        "SAM_DATABASE_URL": f"sqlite:////proc/nowhere/{NAME}",
        "http_proxy": f"http://{BARE}",
    }.items():
        monkeypatch.setenv(name, value)

    assert "evil" in seen(program, command)


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
            seen(publish.main, "spool", *arguments, *options)
    ids = list(spool.names())
    assert ids
    for options in ((), ("--json",)):
        assert "evil" in seen(publish.main, "spool", "show", *ids, *options)


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
                seen(publish.main, *RESULT, *options)
                seen(publish.main, "check", "--connect", *options)
            config = seen.config.with_name("other.toml")
            config.write_text(
                seen.config.read_text().replace("spool://", f'{broker.url}", "spool://')
                + '[[consumer.subscription]]\ndestination = "/queue/x"\n'
            )
            config.chmod(0o600)
            seen(consume.main, "run", "--drain", "--timeout", "0.5", config=config)
    lines = (
        f"HTTP/1.1 500 {BARE}\r\nLocation: {BARE}\r\nContent-Length: {len(EVIL.encode())}\r\n\r\n"
    )
    for status in ("500", "400", "302", "200"):
        answer = lines.replace("500", status, 1).encode() + EVIL.encode()
        with HttpStandIn(lambda asked, answer=answer: answer) as server:
            for kind in ("activemq-rest+http", "rabbitmq-api+http"):
                url = f"{kind}://127.0.0.1:{server.port}/a/b"
                seen(publish.main, *RESULT, "--broker", url, "-v")


def test_the_output_of_a_plugin_is_passed_on_and_nothing_else(seen: Seen, tmp_path: Path) -> None:
    plugin = tmp_path / NAME.replace(":", "")
    plugin.write_text(f"#!/bin/sh\nprintf '%s' '{EVIL}'; exit 9\n")
    plugin.chmod(0o700)

    publish.main(["--config", str(seen.config), "run", "--", str(plugin)])
    out, err = seen.capture.readouterr()

    assert out == EVIL  # byte for byte, as the monitoring system expects
    assert "evil" in err
    require_harmless(err, "run")


def test_messages_that_a_consumer_loads(seen: Seen, tmp_path: Path) -> None:
    spool = DirectoryQueue(tmp_path / "in")
    for message in evil_messages():
        spool.add(message)

    assert "ignored keys" in seen(consume.main, "run", "--drain", "--timeout", "2", "-v")
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
            seen(consume.main, "dead-letter", *command, *options)
    seen(db.main, "classes")


def test_the_state_of_a_daemon(seen: Seen, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    counts = {EVIL: 3}
    state = snapshot(
        name="c",
        since=now,
        written_at=now,
        ended_at=now,
        ended_because=EVIL,
        ignored_keys=counts,
        dead_letters=counts,
        open_dead_letters=counts,
        rows_by_class=counts,
        brokers=(BrokerState(EVIL, 1, 1, (EVIL,), 1),),
    )
    write_state(tmp_path / "state", state)

    for main, command in ((consume.main, ("status",)), (nagios.main, ())):
        for options in ((), ("--json",)):
            assert "evil" in seen(main, *command, *options)


def test_files_to_import(seen: Seen, tmp_path: Path) -> None:
    records = tmp_path / f"records-{NAME}"
    records.write_text(f"{EVIL}\nEOT\nhostName: {BARE}\nEOT\n" + json.dumps({EVIL: EVIL}))
    table = tmp_path / f"table-{NAME}"
    table.write_text(f'downtimeId,siteName,"{EVIL}"\n1,"{EVIL}",3\n')
    endpoints = tmp_path / f"endpoints-{NAME}"
    endpoints.write_text(
        "siteName,serviceFlavour,hostName,validFrom\n"
        f'"{EVIL}",CE,h,2026-01-01T00:00:00Z\n"{BARE}",CE,h,"{EVIL}"\n'
    )
    export = tmp_path / f"export-{NAME}"
    export.write_text("<results><SERVICE_ENDPOINT PRIMARY_KEY='\x85\u202e'><X>&#x85;</X></results>")

    for options in (("--dry-run",), (), ("--json", "--restart")):
        seen(db.main, "import", "records", str(records), *options)
    seen(db.main, "import", "csv", "--class", "downtime", str(table))
    for options in ((), ("--keep-going",), ("--json",)):
        seen(db.main, "import", "csv", "--class", "serviceEndpoint", str(endpoints), *options)
    seen(db.main, "import", "gocdb", "--endpoints", str(export))
    seen(report.main, "now")


def test_downtimes(seen: Seen) -> None:
    times = ("--start", "2026-11-01T00:00Z", "--end", "2099-11-02T00:00Z")
    names = ("--site", BARE, "--host", BARE, "--flavour", BARE, "--id", BARE, "--who", EVIL)
    for site in (names, ("--site", "plain", "--id", "plain")):
        seen(db.main, "downtime", "add", *site, *times, "--reason", EVIL)
    for options in ((), ("--json",)):
        assert "evil" in seen(db.main, "downtime", "list", "--all", *options)
    assert "evil" in seen(db.main, "downtime", "cancel", "plain", "--reason", EVIL, "--json")


def test_a_database_file(seen: Seen, tmp_path: Path) -> None:
    directory = tmp_path / NAME
    directory.mkdir()
    (tmp_path / "sam.db").rename(directory / "sam.db")
    config = tmp_path / "evil.toml"
    path = json.dumps(f"sqlite:///{directory}/sam.db")
    config.write_text(f"[database]\nurl = {path}\n")
    config.chmod(0o600)

    for command in ("current", "check", "upgrade", "repair", "partitions"):
        for options in ((), ("--json",)):
            seen(db.main, command, *options, config=config)


REPORTS = [
    *(("show", "--level", level) for level in ("site", "endpoint", "group", "metric")),
    *(("trends", "--level", level) for level in ("site", "metric")),
    *(("incidents", "--by", thing) for thing in ("incident", "site", "group", "cause")),
]


def test_reports(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    grid = fill(f"sqlite:///{tmp_path}/sam.db", tmp_path)
    grid.dispose()
    site = spoil(tmp_path / "sam.db")
    config = tmp_path / "sam.toml"
    config.write_text(f'[database]\nurl = "sqlite:///{tmp_path}/sam.db"\n')
    config.chmod(0o600)
    seen = Seen(capfd, config)
    period = ("--from", "2026-10-28", "--to", "2026-11-04")

    for command in REPORTS:
        for options in ((), ("--format", "json")):
            assert "evil" in seen(report.main, *command, *period, *options)
    for options in ((), ("--group",), ("--ticket",), ("--json",), ("--host", EVIL)):
        output = seen(report.main, "explain", "--site", site, "--day", str(MARKED_DAY), *options)
        assert "evil" in output
    for command in (("now",), ("exclusion", "list", "--all"), ("seal", "--list")):
        for options in ((), ("--json",)):
            seen(report.main, *command, *options)
    seen(report.main, "now", "--site", site)
    for day in (str(MARKED_DAY), "2026-11-04"):
        assert "evil" in seen(report.main, "explain", "--site", EVIL, "--day", day)
    out = tmp_path / NAME
    for format in ("csv", "json", "argo", "openmetrics", "parquet"):
        seen(report.main, "export", "--format", format, "--out", f"{out}/{format}", *period)
    seen(report.main, "site", "--out", str(out), *period)
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
