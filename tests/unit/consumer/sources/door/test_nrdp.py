"""Submissions to NRDP, as messages of metric results, and its answers."""

from __future__ import annotations

import json
import string
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.consumer.sources.door.answers import BAD_REQUEST, HttpProblem, Reply, try_again
from sam_pipeline.consumer.sources.door.nrdp import (
    BAD_JSON,
    BAD_TOKEN,
    BAD_XML,
    COMMANDS_DISABLED,
    NO_COMMAND,
    NO_DATA,
    NO_TOKEN,
    TOO_MUCH_DATA,
    NrdpProblem,
    NrdpRefusal,
    submitted,
)
from sam_pipeline.schema.messages.decode import decode
from sam_pipeline.schema.messages.message import MAX_RECORDS
from sam_pipeline.schema.records.classes import METRIC_OUTPUT

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
NAMES = ("checkresult", "hostname", "servicename", "state", "output", "time", "timestamp", "voName")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text(),
    lambda values: st.lists(values, max_size=2) | st.dictionaries(st.text(), values, max_size=2),
    max_leaves=4,
)
RESULTS = st.dictionaries(st.sampled_from(NAMES), VALUES)
CHECK = {"cmd": "submitcheck"}
BOMB = '<!DOCTYPE a [<!ENTITY b "c">]><checkresults>&b;</checkresults>'
BAD_DATA = {
    "": NO_DATA,
    **dict.fromkeys(("<checkresults>", BOMB, "{}", "<checkresult/>"), BAD_XML),
    "<a/>" * 200_001: TOO_MUCH_DATA,
}
BAD_TEXT = {
    **dict.fromkeys(("<a/>", "[" * 100_000, "[]", '{"checkresults": [1]}'), BAD_JSON),
    "[{}," + "{}," * 200_001: TOO_MUCH_DATA,
}
STATES = [
    *("host 0 OK", "host 1 CRITICAL", "host 2 UNKNOWN", "host down CRITICAL"),
    *("service 1 WARNING", "service 2 CRITICAL", "service 3 UNKNOWN", "service Warning WARNING"),
]


def rows_of(parameters: dict[str, str], flavour: str = "") -> list[dict[str, str]]:
    """The rows that are loaded, and nothing but rows."""
    rows = []
    for message in submitted(CHECK | parameters, flavour, NOW):
        decoded = decode(message, METRIC_OUTPUT.keys, NOW)
        assert not decoded.bad and not decoded.ignored
        rows += [dict(row.values) for row in decoded.rows]
    return rows


def json_of(*results: dict[str, Any]) -> dict[str, str]:
    return {"JSONDATA": json.dumps({"checkresults": list(results)})}


def service(**changes: Any) -> dict[str, Any]:
    """A result as clients of NRDP write it."""
    usual = {
        "checkresult": {"type": "service", "checktype": "1"},
        "hostname": "ce01.example.org",
        "servicename": "org.example.CE-Ping",
        "state": "0",
        "output": "OK",
    }
    return {**usual, **changes}


def document_of(reply: Reply) -> Any:
    if reply.content_type == "application/json":
        return json.loads(reply.body)
    root = ElementTree.fromstring(reply.body)
    return {root.tag: {element.tag: element.text for element in root}}


@pytest.mark.parametrize("name", ["XMLDATA", "xml"])
def test_the_result_of_a_service_in_xml_becomes_a_metric_result(name: str) -> None:
    output = r"DISK <![CDATA[91 % & full |]]> /=91%;90;95\nline 2\nC:\\temp"
    xml = (
        "<?xml version='1.0' encoding='utf-8'?>\n<checkresults>"
        "<checkresult type='service' checktype='1'><hostname>SE01.example.org</hostname>"
        "<servicename>org.example.SE-Disk</servicename>"
        f"<state>1</state><output>{output}</output></checkresult></checkresults>"
    )

    assert rows_of({name: xml}, "SE") == [
        {
            "hostName": "se01.example.org",
            "serviceFlavour": "SE",
            "metricName": "org.example.SE-Disk",
            "metricStatus": "WARNING",
            "timestamp": "2026-11-20T12:00:00Z",
            "summaryData": "DISK 91 % & full",
            "performanceData": "/=91%;90;95",
            "detailsData": "line 2\nC:\\temp",
        }
    ]


@pytest.mark.parametrize("row", STATES)
def test_the_state_of_a_host_or_a_service_is_that_of_nagios(row: str) -> None:
    kind, state, status = row.split()
    result = service(state=state, checkresult={"type": kind}, time=1790000000)
    if kind == "host":
        del result["servicename"]

    (loaded,) = rows_of(json_of(result), "CE" if kind == "host" else "")

    host = {"metricName": "Host-Check", "serviceFlavour": "Host"}
    names = host if kind == "host" else {"serviceFlavour": "Service"}
    expected = {"metricStatus": status, "timestamp": "2026-09-21T14:13:20Z", **names}
    assert expected.items() <= loaded.items()


def test_a_bad_result_does_not_affect_the_others() -> None:
    results = json_of(service(), service(state="7"), service(hostname=""))

    (message,) = submitted(CHECK | results, "", NOW)
    decoded = decode(message, METRIC_OUTPUT.keys, NOW)

    assert [row.number for row in decoded.rows] == [1]
    bad = [(bad.number, bad.reason) for bad in decoded.bad]
    assert bad == [(2, "bad-status"), (3, "missing-key")]


def test_many_results_are_several_messages_with_the_same_ids_each_time() -> None:
    results = CHECK | json_of(*(service(servicename=f"m{at}", time="1") for at in range(250)))

    first, again = (submitted(results, "", moment) for moment in (NOW, datetime.now(UTC)))

    assert [message.record_count for message in first] == [MAX_RECORDS, MAX_RECORDS, 50]
    assert [message.message_id for message in first] == [message.message_id for message in again]
    assert first[0].message_id.startswith("sha256:")


@given(st.lists(RESULTS, max_size=4))
def test_whatever_is_submitted_becomes_rows_or_dead_letters(results: list[Any]) -> None:
    messages = submitted(CHECK | json_of(*results), "", NOW)

    decoded = [decode(message, METRIC_OUTPUT.keys, NOW) for message in messages]
    assert sum(len(part.rows) + len(part.bad) for part in decoded) == len(results)


@given(st.text("<>/='\"&;!?[]- \0\né" + string.ascii_lowercase) | st.text())
def test_whatever_is_not_xml_is_refused_as_bad(text: str) -> None:
    for xml in (text, f"<checkresults>{text}"):
        with pytest.raises(NrdpProblem):
            submitted(CHECK | {"XMLDATA": xml}, "", NOW)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, NO_COMMAND),
        ({"cmd": "dance"}, NO_COMMAND),
        ({"cmd": "submitcmd", "command": "DISABLE_NOTIFICATIONS"}, COMMANDS_DISABLED),
        (CHECK, NO_DATA),
        *((CHECK | {"XMLDATA": xml}, message) for xml, message in BAD_DATA.items()),
        *((CHECK | {"JSONDATA": text}, message) for text, message in BAD_TEXT.items()),
    ],
)
def test_without_results_nrdp_explains_itself(parameters: dict[str, str], message: str) -> None:
    with pytest.raises(NrdpProblem) as raised:
        submitted(parameters, "", NOW)

    reply = NrdpRefusal(parameters, raised.value).reply()
    document = document_of(reply)["result"]
    assert reply.status == BAD_REQUEST
    assert (str(document["status"]), document["message"]) == ("-1", message)


@pytest.mark.parametrize(
    ("token", "problem", "key", "value"),
    [
        ("", HttpProblem(401, "x"), "message", NO_TOKEN),
        ("secret", HttpProblem(401, "x"), "message", BAD_TOKEN),
        ("", try_again(503, "the database is away", 5), "message", "SERVICE UNAVAILABLE"),
        ("", NrdpProblem(BAD_XML, "<a> & b"), "information", "<a> & b"),
    ],
)
def test_problems_are_those_of_nrdp(token: str, problem: HttpProblem, key: str, value: str) -> None:
    reply = NrdpRefusal({"token": token}, problem).reply()

    [(_, result)] = document_of(reply).items()
    assert (reply.status, result[key]) == (problem.status, value)
    assert reply.headers.get("Retry-After") == ("5" if problem.status == 503 else None)
