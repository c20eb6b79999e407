"""Foreign writers: spool elements written by their own libraries, and renamed keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dirq.QueueSimple import QueueSimple
from messaging.message import Message as ForeignMessage
from messaging.queue.dqs import DQS

from sam_pipeline.sql.database.engine import make_engine
from tests.support.consumer.site import Site
from tests.support.database.sql_rows import query

DETAILS = "line one\nline two " + "x" * 9000
METRIC = "org.sam.CONDOR-JobSubmit-/atlas/Role=lcgadmin"
RESULTS = """
    SELECT hostName, serviceFlavour, metricName, metricStatus, timestamp, monitoringHost,
        summaryData, detailsData, voName
    FROM metricOutput ORDER BY serviceFlavour
"""


def describe(site: Site, subscription: str) -> Path:
    """Let the subscription describe the elements of the spool; returns its path."""
    spool = site.config.with_name("spool")
    site.edit('"/topic/grid.none"', json.dumps(f"spool://{spool}"))
    site.edit('class = "metricOutput"', subscription)
    return spool


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


def nstream_enqueue(spool: Path, result: Mapping[str, Any], destination: str | None) -> None:
    """Add an element like nstream, whose destination header is null unless one is given."""
    header = {"nagiosHost": "etf.example.org", "destination": destination}
    message = ForeignMessage(body=json.dumps(result), header=header)
    message.is_text = True
    DQS(path=str(spool)).add_message(message)


def test_results_in_an_nstream_spool_are_loaded(small_site: Site) -> None:
    spool = describe(small_site, 'format = "nstream"\nrename = { experiment = "voName" }')
    nstream_enqueue(spool, nstream_result(experiment="atlas"), None)
    counters = {"tags": "ARC-CE CREAM-CE", "timestamp": "1795176000", "perf_metrics": {"time": 1.5}}
    nstream_enqueue(spool, nstream_result(**counters), "/topic/sam.atlas.metric")
    # An element of another DQS writer: text without a header.
    element = {"body": json.dumps([nstream_result(tags="SRMv2", status="OK")])}
    QueueSimple(str(spool)).add(json.dumps(element))

    drained = small_site.drain()

    assert (drained.code, drained.summary["rows"]) == (0, 4), drained.log
    assert drained.summary["ignored_keys"] == {"perf_metrics": 1}
    engine = make_engine(small_site.database)
    rows = query(engine, RESULTS)
    engine.dispose()
    host, time = "ce01.example.org", "2026-11-20T12:00:00Z"
    values = (METRIC, "CRITICAL", time, "etf.example.org", "no job finished", DETAILS)
    assert rows == [
        (host, "ARC-CE", *values, None),
        (host, "CREAM-CE", *values, None),
        (host, "HTCONDOR-CE", *values, "atlas"),
        (host, "SRMv2", METRIC, "OK", time, None, "no job finished", DETAILS, None),
    ]
    assert not list(spool.glob("*/*"))


def test_a_message_above_a_limit_is_stored_whole_and_loaded_once_the_limit_is_raised(
    small_site: Site,
) -> None:
    limits = "max_message_bytes = 20000\nmax_records = 3\nmax_age_days = 365\nmax_future_s = 60"
    spool = describe(small_site, 'format = "nstream"')
    small_site.configure(limits)
    many = [nstream_result(details="", tags=f"F{number}") for number in range(4)]
    long, old = (
        nstream_result(details="x" * 20_000),
        nstream_result(timestamp="2025-11-01T00:00:00Z"),
    )
    for result in (many, long, old):
        QueueSimple(str(spool)).add(json.dumps({"body": json.dumps(result)}))

    drained = small_site.drain()
    small_site.edit(limits, "")
    replayed = small_site.json("dead-letter", "replay", "--all")

    letters = {"too-large": 1, "too-many-records": 1, "too-old": 1}
    assert drained.summary["dead_letters"] == letters
    assert [outcome["state"] for outcome in replayed] == ["replayed"] * 3
    assert small_site.rows() == 6
