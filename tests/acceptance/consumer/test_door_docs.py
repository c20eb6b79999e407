"""Every command of docs/door.md works, in the order of the page, against an installed consumer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sam_pipeline.schema.identity.tokens import make_token
from tests.services.process import HOST, free_ports, port_is_open
from tests.support.builders import metric_result
from tests.support.commands import Workplace, embedded
from tests.support.consumer.site import eventually
from tests.support.page import Page, shell
from tests.support.reports.stored import query

PAGE = Page("docs/door.md")
SETTINGS, SEND, COMPRESSED = PAGE.texts("sh", "Send results")
(ANSWER,) = PAGE.texts("json", "Send results")
(AGAIN,) = PAGE.texts("sh", "Answers")
(MANY,) = PAGE.texts("sh", "Many messages")
(FORM,) = PAGE.texts("sh", "ActiveMQ")
(CHECKS,) = PAGE.texts("json", "From NRDP")
(NRDP,) = PAGE.texts("sh", "From NRDP")

RESULT = (
    *("--metric", "org.example.Old", "--status", "OK"),
    *("--host", "ce01.example.org", "--flavour", "CE", "--require-broker"),
)

CONFIGURATION = """\
[database]
url = "sqlite:///sam.db"
[publisher]
brokers = ["activemq-rest+http://probe@{address}"]
password_file = "password"
spool = "outbox"
[consumer]
name = "door"
brokers = ["listen+http://{address}"]
[consumer.door]
tokens_file = "tokens"
require_identity = true
"""


@contextmanager
def open_door(directory: Path) -> Iterator[tuple[Workplace, str]]:
    """A workplace with a running door, and the first commands of the page, for this door."""
    (port,) = free_ports(1)
    address = f"{HOST}:{port}"
    workplace = embedded(directory)
    workplace.write("sam.toml", CONFIGURATION.format(address=address))
    token = make_token(directory / "tokens", "probe")
    workplace.write("password", token)
    settings = SETTINGS.replace("https://door.example.org:8443", f"http://{address}")
    with workplace.running("sam-consume", "run"):
        eventually(lambda: port_is_open(port))
        yield workplace, settings.replace("TOKEN", token)


def documents(text: str) -> list[dict[str, object]]:
    """The JSON documents that stand one after the other."""
    decoder, found = json.JSONDecoder(), []
    while text := text.strip():
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    names = ("m1", "m2", "m3")
    records = [metric_result(metricName=name) for name in names]
    records[2]["metricStatus"] = "FINE"
    text = "".join(
        "".join(f"{key}: {value}\n" for key, value in record.items()) + "EOT\n"
        for record in records
    )
    with open_door(tmp_path) as (workplace, settings):
        workplace.write("results.txt", text)
        workplace.write("results.json", json.dumps(records[:2]))
        workplace.write("checks.json", CHECKS)

        done = shell(workplace, settings, SEND, COMPRESSED, AGAIN, MANY)
        assert done.code == 0, str(done)
        form = shell(workplace, settings, FORM)
        checks = shell(workplace, settings, NRDP)
        workplace.succeed("sam-publish", "result", *RESULT)
        proven = workplace.succeed("sam-publish", "check", "--connect").out

    first, as_json, compressed, again, *lines = documents(done.out)
    expected = json.loads(ANSWER.replace("…", ""))
    assert first.keys() == expected.keys()
    assert (first["rows"], first["duplicates"]) == (expected["rows"], expected["duplicates"])
    assert (as_json["rows"], as_json["duplicates"], as_json["deadLetters"]) == (0, 2, [])
    assert compressed == {**first, "rows": 0, "duplicates": 2}
    assert again["duplicates"] == 2
    assert [line["status"] for line in lines] == [200, 200]
    assert (form.code, form.out) == (0, "Message sent")
    assert "confirmed" in proven
    assert json.loads(checks.out)["result"]["meta"]["output"] == "2 checks processed"
    rows = query(workplace.database, "SELECT DISTINCT metricName, publisher FROM metricOutput")
    stored = {"m1", "m2", "org.example.CE-Ping", "Host-Check", "org.example.Old"}
    assert {row["metricName"] for row in rows} == stored
    assert {row["publisher"] for row in rows} == {"token:probe"}


def test_the_tests_use_every_command_of_the_page() -> None:
    assert PAGE.unused("sh", "json") == []
