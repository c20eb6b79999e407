"""A dead letter of every documented reason."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from docs.reasons import dead_letter_reasons
from sam_pipeline.schema.messages.message import Message
from tests.support.commands import embedded
from tests.support.consumer.site import fill_spool
from tests.support.reports.stored import execute, query

RECORD = {
    "hostName": "ce01.example.org",
    "serviceFlavour": "CE",
    "metricName": "org.example.Ping",
    "metricStatus": "OK",
    "timestamp": "2026-11-20T12:00:00Z",
}


def text_of(**changes: str) -> str:
    record = {**RECORD, **changes}
    return "".join(f"{key}: {value}\n" for key, value in record.items() if value) + "EOT\n"


def json_of(**changes: Any) -> str:
    return json.dumps({**RECORD, **changes})


JSON = {"content-type": "application/json"}
MAKES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "unknown-class": (text_of(), {"messageClass": "nosuch"}),
    "class-broken": ("hostName: a\nEOT\n", {"messageClass": "downtime"}),
    "refused-by-database": (text_of(metricName="long" * 300), {}),
    "missing-key": (text_of(metricName=""), {}),
    "bad-status": (text_of(metricStatus="SPLENDID"), {}),
    "bad-time": (text_of(timestamp="noon"), {}),
    "bad-host": (text_of(hostName="two words"), {}),
    "bad-weight": ("groupType: VO\nweight: much\nEOT\n", {"messageClass": "siteGroup"}),
    "too-old": (text_of(timestamp="2001-01-01T00:00:00Z"), {}),
    "in-the-future": (text_of(timestamp="2999-01-01T00:00:00Z"), {}),
    "too-large": (text_of(detailsData="x" * 3000), {}),
    "too-many-records": ("key: value\nEOT\n" * 31, {}),
    "truncated": (text_of(detailsData="x").removesuffix("EOT\n"), {}),
    "no-key": ("no colon\nEOT\n", {}),
    "duplicate-key": (text_of().replace("EOT", "hostName: b\nEOT"), {}),
    "empty": ("", {}),
    "not-json": ("{", JSON),
    "nested": (json_of(summaryData={"a": 1}), JSON),
    "bad-text": (json_of(summaryData="\ud800"), JSON),
    "nul-byte": (text_of(summaryData="a\0b"), {}),
    "control-character": (json_of(metricName="a\nb"), JSON),
    "unknown-format": (text_of(), {"samFormat": "xml"}),
    "bad-rename": (text_of(), {"samRename": "="}),
    "bad-frame": (text_of(), {"samRefused": "bad-frame"}),  # as a relay marks it
    "bad-signature": (text_of(), {"samRefused": "bad-signature"}),
    "signature-expired": (text_of(), {"samRefused": "signature-expired"}),
    "unsigned": (text_of(), {"samIdentity": "uid:1"}),  # as a relay has established it
    "not-authorised": (text_of(), {"samIdentity": "uid:2"}),
    "mixed": ("no colon\nEOT\n" * 20 + "key: a\nkey: b\nEOT\n", {}),
    "poison": (text_of(), {"samMessageId": "poison"}),
    "flood": ("no colon\nEOT\n", {"JMSXUserID": "other", "note": "x" * 50_000}),
}
"""A body and headers that give a dead letter of each reason."""
POLICY = f"""
mode = "enforce"
[[publisher]]
name = "this account"
is = ["uid:{os.getuid()}"]
classes = ["*"]
sites = ["*"]
hosts = ["*"]
[[publisher]]
name = "signs"
is = ["uid:1", "key:signs"]
keys = ["ed25519:MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="]
signed = true
classes = ["*"]
hosts = ["*"]
"""


def test_every_documented_reason_can_occur(tmp_path: Path) -> None:
    workplace = embedded(tmp_path)
    settings = "max_message_bytes = 2000\nmax_records = 30\ndead_letter_bytes_per_hour = 40000"
    settings += '\npublishers = "publishers.toml"'
    replace(workplace, consumer_settings=settings).write_configuration()
    workplace.write("publishers.toml", POLICY)
    execute(workplace.database, "DROP TRIGGER downtime_insert")
    execute(
        workplace.database,
        "CREATE TRIGGER strict BEFORE INSERT ON metric WHEN length(NEW.name) > 1000"
        " BEGIN SELECT RAISE(ABORT, 'the name is too long'); END",
    )
    died = {"pending": ["poison"], "deaths": {"poison": 3}}
    workplace.write("state/sam/consume-acceptance.attempts", json.dumps(died))
    fill_spool(
        workplace.directory / "spool",
        [
            Message(
                {"messageClass": "metricOutput", "samMessageId": reason, **headers}, text.encode()
            )
            for reason, (text, headers) in MAKES.items()
        ],
    )

    drained = workplace.run("sam-consume", "run", "--drain")

    letters = query(workplace.database, "SELECT message_id, reason FROM dead_letter")
    assert drained.code == 65, str(drained)
    by_id = {row["message_id"].partition(":")[0]: row["reason"] for row in letters}
    assert by_id == {name: name for name in MAKES}
    assert MAKES.keys() == dead_letter_reasons().keys()
