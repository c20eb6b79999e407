"""Probe results of ETF, as nstream writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from sam_pipeline.schema.messages.decode import Decoded, decode
from sam_pipeline.schema.messages.foreign import make_stamp
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from tests.support.builders import NOW


def nstream_result(**changes: Any) -> dict[str, Any]:
    """A result as written by nstream's backend `mq`, with the documented names."""
    result = {
        "metric": "org.lhcb.SRM-VOPut-/lhcb/Role=production",
        "host": "SRM01.example.org",
        "status": "WARNING",
        "summary": "slow",
        "details": r"copied in 61 s\nremoved",
        "tags": "SRMv2",
        "timestamp": "2026-11-20T12:00:00Z",
        **changes,
    }
    return {key: value for key, value in result.items() if value is not None}


def decoded(document: Any, rename: Mapping[str, str] | None = None, **headers: str) -> Decoded:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    stamp = make_stamp(format_name="nstream", rename=rename or {})
    return decode(stamp.stamped(Message(headers, body)), METRIC_OUTPUT.keys, NOW)


def test_a_result_becomes_a_metric_result_of_the_monitoring_host() -> None:
    [row] = decoded(nstream_result(), nagiosHost="etf-prod.example.org").rows

    assert row.values == {
        "metricName": "org.lhcb.SRM-VOPut-/lhcb/Role=production",
        "hostName": "srm01.example.org",
        "metricStatus": "WARNING",
        "summaryData": "slow",
        "detailsData": "copied in 61 s\nremoved",
        "serviceFlavour": "SRMv2",
        "timestamp": "2026-11-20T12:00:00Z",
        "monitoringHost": "etf-prod.example.org",
    }


def pairs(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split())


WITHOUT_C_MAP = pairs("""
servicedesc=org.sam.M hostname=ce01.example.org servicestate=OK _servicetags=CE _servicevo=ops
lastservicecheck=1795176000 servicestatetype=HARD
""")
RENAME = pairs("""
servicedesc=metricName servicestate=metricStatus _servicetags=tags _servicevo=voName
lastservicecheck=timestamp
""")
TIME = {"timestamp": "2026-11-20T12:00:00Z"}
MORE = {"timestamp": "1795176000", "datetime": "x", "perfdata": "t=61s", "perf_metrics": {"t": 61}}


@pytest.mark.parametrize(
    ("result", "rename", "expected", "ignored"),
    [
        (nstream_result(**MORE), {}, {**TIME, "performanceData": "t=61s"}, "datetime perf_metrics"),
        (WITHOUT_C_MAP, RENAME, {"serviceFlavour": "CE", "voName": "ops"}, "servicestatetype"),
        (
            WITHOUT_C_MAP,
            {**RENAME, "_servicetags": "serviceFlavour"},
            {"serviceFlavour": "CE", **TIME},
            "servicestatetype",
        ),
        # Line ends that Nagios did not write are kept.
        (nstream_result(details=r"C:\\new"), {}, {"detailsData": r"C:\\new"}, ""),
        (nstream_result(details="a\nb"), {}, {"detailsData": "a\nb"}, ""),
        (nstream_result(summary=r"a\nb"), {}, {"summaryData": r"a\nb"}, ""),
    ],
)
def test_keys_are_those_of_nstream_unless_they_are_renamed(
    result: Any, rename: Mapping[str, str], expected: Mapping[str, str], ignored: str
) -> None:
    outcome = decoded(result, rename)
    [row] = outcome.rows
    assert expected.items() <= row.values.items()
    assert outcome.ignored == dict.fromkeys(ignored.split(), 1)


def test_each_tag_is_a_flavour_and_a_result_without_one_is_refused_alone() -> None:
    for tags in ("CREAM-CE ARC-CE", "CREAM-CE,ARC-CE", " CREAM-CE, ARC-CE "):
        for key in ("tags", "Tags", "serviceFlavour"):
            outcome = decoded(nstream_result(**{"tags": None, key: tags}))
            assert [row.values["serviceFlavour"] for row in outcome.rows] == ["CREAM-CE", "ARC-CE"]
            assert not outcome.ignored
    for none in (None, "", " , "):
        explicit = nstream_result(serviceFlavour="SRM", tags="prod")
        outcome = decoded([explicit, nstream_result(tags=none)])
        [refused] = outcome.bad
        assert (refused.number, refused.reason) == (2, "missing-key")
        assert "tags or serviceFlavour" in refused.text
        assert [row.values["serviceFlavour"] for row in outcome.rows] == ["SRM"]
        assert outcome.ignored["tags"] >= 1


BAD: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bad-status", {"status": "PENDING"}),
    ("bad-status", {"status": {"OK": 1}}),
    ("bad-time", {"timestamp": "yesterday"}),
    ("missing-key", {"timestamp": None}),
    ("bad-host", {"host": ["a"]}),
    ("duplicate-key", {"metricName": "both"}),
    ("nul-byte", {"metric": "a\0b"}),
)


def test_a_bad_result_keeps_its_bytes_and_its_reason() -> None:
    for reason, changes in BAD:
        [refused] = decoded(nstream_result(**changes)).bad
        assert refused.reason == reason
        assert json.loads(refused.raw) == nstream_result(**changes)
    for body in (b"metric: x\nEOT\n", b'"x"', b"[" * 100_000, b"\xff"):
        [refused] = decoded(body).bad
        assert (refused.reason, refused.raw) == ("not-json", body)
    assert len(decoded(b'{"metric": "x", "deep": ' + b"[" * 900 + b"]" * 900 + b"}").bad) == 1
