"""Foreign writers: spool elements written by their own libraries, and renamed keys."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from dirq.QueueSimple import QueueSimple
from messaging.message import Message as ForeignMessage
from messaging.queue.dqs import DQS
from sqlalchemy import Engine

from sam_pipeline.schema.messages.message import Message
from sam_pipeline.sql.database.engine import make_engine
from tests.support.consumer.site import Site, fill_spool, make_site
from tests.support.database.own_class import make_class
from tests.support.database.sql_rows import query

DETAILS = "line one\nline two " + "x" * 9000
RESULTS = """
    SELECT hostName, serviceFlavour, metricName, metricStatus, timestamp, monitoringHost,
        summaryData, detailsData, voName
    FROM metricOutput ORDER BY serviceFlavour
"""


class ForeignSite:
    """A site on SQLite that reads one spool of foreign elements, described by its subscription."""

    def __init__(self, directory: Path, subscription: str, consumer: str = "") -> None:
        self.spool = directory / "nstream"
        url = f"spool://{self.spool}"
        self.site: Site = make_site(directory, f"sqlite:///{directory}/sam.db", [url])
        config = self.site.config.read_text()
        config = config.replace('"/topic/grid.none"', json.dumps(url))
        config = config.replace('class = "metricOutput"', subscription)
        self.site.config.write_text(config.replace("[consumer]", f"[consumer]\n{consumer}"))
        self.engine: Engine = make_engine(self.site.database)


@pytest.fixture
def foreign_sites(tmp_path: Path) -> Iterator[list[ForeignSite]]:
    opened: list[ForeignSite] = []
    yield opened
    for foreign in opened:
        foreign.engine.dispose()


def nstream_result(**changes: Any) -> dict[str, Any]:
    return {
        "metric": "org.sam.CONDOR-JobSubmit-/atlas/Role=lcgadmin",
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


def test_results_in_an_nstream_spool_are_loaded(
    tmp_path: Path, foreign_sites: list[ForeignSite]
) -> None:
    foreign = ForeignSite(tmp_path, 'format = "nstream"\nrename = { experiment = "voName" }')
    foreign_sites.append(foreign)
    nstream_enqueue(foreign.spool, nstream_result(experiment="atlas"), None)
    with_counters = nstream_result(
        tags="ARC-CE CREAM-CE", timestamp="1795176000", perf_metrics={"time": 1.5}
    )
    nstream_enqueue(foreign.spool, with_counters, "/topic/sam.atlas.metric")
    # An element of another DQS writer: text without a header.
    element = {"body": json.dumps([nstream_result(tags="SRMv2", status="OK")])}
    QueueSimple(str(foreign.spool)).add(json.dumps(element))

    drained = foreign.site.drain()

    assert (drained.code, drained.summary["rows"]) == (0, 4), drained.log
    assert drained.summary["ignored_keys"] == {"perf_metrics": 1}
    rows = query(foreign.engine, RESULTS)
    host, metric, time = "ce01.example.org", nstream_result()["metric"], "2026-11-20T12:00:00Z"
    values = (metric, "CRITICAL", time, "etf.example.org", "no job finished", DETAILS)
    assert rows == [
        (host, "ARC-CE", *values, None),
        (host, "CREAM-CE", *values, None),
        (host, "HTCONDOR-CE", *values, "atlas"),
        (host, "SRMv2", metric, "OK", time, None, "no job finished", DETAILS, None),
    ]
    assert not list(foreign.spool.glob("*/*"))


def test_an_nstream_result_without_flavour_is_a_dead_letter_that_can_be_replayed(
    tmp_path: Path, foreign_sites: list[ForeignSite]
) -> None:
    foreign = ForeignSite(tmp_path, 'format = "nstream"')
    foreign_sites.append(foreign)
    nstream_enqueue(foreign.spool, nstream_result(tags=""), None)

    drained = foreign.site.drain()
    shown = json.loads(foreign.site.run("dead-letter", "show", "--json", "1").stdout)
    replayed = foreign.site.run("dead-letter", "replay", "--json", "1")

    assert (drained.code, drained.summary["dead_letters"]) == (65, {"missing-key": 1})
    assert shown["message_class"] == "metricOutput"
    assert shown["headers"]["samFormat"] == "nstream"
    # The replay reads it as nstream again, not as text without keys.
    assert [outcome["reason"] for outcome in json.loads(replayed.stdout)] == ["missing-key"]


def test_keys_are_renamed_for_a_custom_class(
    tmp_path: Path, foreign_sites: list[ForeignSite]
) -> None:
    foreign = ForeignSite(
        tmp_path, 'class = "diskUsage"\nrename = { node = "machine", "used %" = "percent" }'
    )
    foreign_sites.append(foreign)
    make_class(foreign.engine, "diskUsage", machine="text", percent="text")
    as_json = json.dumps({"NODE": "a.example.org", "used %": 91})
    fill_spool(foreign.spool, [Message({}, b"node: b.example.org\npercent: 7\nEOT\n")])
    fill_spool(foreign.spool, [Message({"content-type": "application/json"}, as_json.encode())])

    drained = foreign.site.drain()

    assert (drained.code, drained.summary["rows"]) == (0, 2), drained.log
    rows = query(foreign.engine, "SELECT machine, percent FROM diskUsage ORDER BY machine")
    assert rows == [("a.example.org", "91"), ("b.example.org", "7")]


def test_a_message_above_a_limit_is_stored_whole_and_loaded_once_the_limit_is_raised(
    tmp_path: Path, foreign_sites: list[ForeignSite]
) -> None:
    limits = "max_message_bytes = 20000\nmax_records = 3\nmax_age_days = 365\nmax_future_s = 60"
    foreign = ForeignSite(tmp_path, 'format = "nstream"', limits)
    foreign_sites.append(foreign)
    many = [nstream_result(details="", tags=f"F{number}") for number in range(4)]
    long = nstream_result(details="x" * 20_000)
    for result in (many, long, nstream_result(timestamp="2025-11-01T00:00:00Z")):
        QueueSimple(str(foreign.spool)).add(json.dumps({"body": json.dumps(result)}))

    drained = foreign.site.drain()
    config = foreign.site.config.read_text()
    foreign.site.config.write_text(config.replace(limits, ""))
    replayed = foreign.site.run("dead-letter", "replay", "--all", "--json")

    assert drained.summary["dead_letters"] == {
        "too-large": 1,
        "too-many-records": 1,
        "too-old": 1,
    }
    assert [outcome["state"] for outcome in json.loads(replayed.stdout)] == ["replayed"] * 3
    assert foreign.site.rows() == 6


def test_check_reports_invalid_formats_and_renames(
    tmp_path: Path, foreign_sites: list[ForeignSite]
) -> None:
    foreign = ForeignSite(tmp_path, 'format = "etf"\nrename = { a = "b", c = "B" }')
    foreign_sites.append(foreign)

    checked = foreign.site.run("check", "--json")

    problems = json.loads(checked.stdout)["problems"]
    assert checked.returncode == 78
    assert "wlcg, nstream" in problems[0]
    assert "both become" in problems[1]
