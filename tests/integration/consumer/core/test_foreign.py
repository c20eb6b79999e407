"""Spool elements that foreign writers wrote with their own libraries, with renamed keys."""

from __future__ import annotations

import json
from typing import Any

from dirq.QueueSimple import QueueSimple
from messaging.message import Message as ForeignMessage
from messaging.queue.dqs import DQS

from tests.support.consumer.site import Site
from tests.support.reports.stored import query

DETAILS = "line one\nline two " + "x" * 9000
METRIC = "org.sam.CONDOR-JobSubmit-/atlas/Role=lcgadmin"


def nstream_result(**changes: Any) -> dict[str, Any]:
    return {
        "metric": METRIC,
        "host": "ce01.example.org",
        "status": "CRITICAL",
        "summary": "no job finished",
        "details": DETAILS.replace("\n", r"\n"),
        "tags": "HTCONDOR-CE",
        "timestamp": "2026-11-20T12:00:00Z",
        **changes,
    }


def test_results_in_an_nstream_spool_are_loaded(small_site: Site) -> None:
    spool = small_site.config.with_name("spool")
    small_site.edit('"/topic/grid.none"', json.dumps(f"spool://{spool}"))
    small_site.edit(
        'class = "metricOutput"', 'format = "nstream"\nrename = { experiment = "voName" }'
    )
    counters = {"tags": "ARC-CE CREAM-CE", "timestamp": "1795176000", "perf_metrics": {"time": 1.5}}
    for result, destination in (
        (nstream_result(experiment="atlas"), None),
        (nstream_result(**counters), "/topic/sam.atlas.metric"),
    ):
        header = {"nagiosHost": "etf.example.org", "destination": destination}
        message = ForeignMessage(body=json.dumps(result), header=header)
        message.is_text = True
        DQS(path=str(spool)).add_message(message)
    # An element of another DQS writer: text without a header.
    element = {"body": json.dumps([nstream_result(tags="SRMv2", status="OK")])}
    QueueSimple(str(spool)).add(json.dumps(element))

    drained = small_site.drain()

    assert (drained.code, drained.summary["rows"]) == (0, 4), drained.log
    assert drained.summary["ignored_keys"] == {"perf_metrics": 1}
    rows = query(
        small_site.database,
        "SELECT serviceFlavour, metricName, metricStatus, timestamp, monitoringHost, detailsData,"
        " voName FROM metricOutput ORDER BY serviceFlavour",
    )
    time = "2026-11-20T12:00:00Z"
    values = (METRIC, "CRITICAL", time, "etf.example.org", DETAILS)
    assert [tuple(row.values()) for row in rows] == [
        ("ARC-CE", *values, None),
        ("CREAM-CE", *values, None),
        ("HTCONDOR-CE", *values, "atlas"),
        ("SRMv2", METRIC, "OK", time, None, DETAILS, None),
    ]
    assert not list(spool.glob("*/*"))
