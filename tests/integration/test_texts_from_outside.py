"""Control characters in texts from outside reach no terminal and no log, and end no line.

They are put into what a stranger can send. For the walls between texts and output see
tests/unit/schema/program, and test_rooms.py: nothing else prints.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sam_pipeline.consumer.core import loop
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.schema.times import format_time
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.http_stand_in import HttpStandIn
from tests.support.builders import metric_message, metric_result
from tests.support.database.with_schema import with_schema
from tests.support.invoke import invoke

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
    monkeypatch.setattr(loop, "SILENCE_S", 0.2)
    config = tmp_path / "sam.toml"
    config.write_text(
        f'[database]\nurl = "sqlite:///{tmp_path}/sam.db"\n'
        f'[publisher]\nspool = "{tmp_path}/spool"\ntimeout = "2s"\n'
        f'[consumer]\nname = "c"\nbrokers = ["spool://{tmp_path}/in"]\n'
    )
    config.chmod(0o600)
    with_schema(f"sqlite:///{tmp_path}/sam.db").dispose()
    return Seen(config)


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

    assert "ignored key" in seen("sam-consume", "run", "--drain", "--timeout", "2", "-v")
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
    seen("sam-db", "class", "list")
