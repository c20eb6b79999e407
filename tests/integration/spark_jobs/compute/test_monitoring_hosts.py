"""Two monitoring hosts measure the same things at the same times, and one of them is excluded."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark import SparkContext

from sam_pipeline.schema.records.text import Record
from sam_pipeline.spark_jobs.compute import job
from sam_pipeline.spark_jobs.explain.selection import Selection, read_site_days
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, Exclusion
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, day_start
from sam_pipeline.spark_jobs.runs.exclusions import add
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.load import load
from tests.support.builders import metric_message, metric_result
from tests.support.database.sql_rows import query
from tests.support.reports.database import DAY, LATER, Grid, profile
from tests.support.reports.published import Rows, published_figures, published_timeline

GOOD, BAD = "nagios1.example.org", "nagios2.example.org"
PERIOD = Period(DAY, DAY + timedelta(days=1))
BEGIN = day_start(DAY) - DAY_S
BAD_IS_WRONG = Exclusion(
    0, MONITORING_HOST, BAD, "", "", "", "", BEGIN, PERIOD.end, "its network was down", "ada"
)
STATUSES = ("OK", "WARNING", "UNKNOWN", "CRITICAL")
ENDPOINTS = {("A", "CE", "h1"): ("ping", "submit"), ("B", "SRM", "h2"): ("put",)}


Facts = tuple[Rows, Rows]
"""Published figures and timelines."""


class Sent(NamedTuple):
    """A result, and the monitoring host that the header of its message names."""

    monitoring_host: str
    record: Record


def drawn(rng: random.Random) -> list[Sent]:
    """Results of every metric in nearly every hour, most of them by both hosts."""
    return [
        Sent(
            monitoring_host,
            metric_result(
                hostName=host,
                serviceFlavour=flavour,
                metricName=metric,
                metricStatus=rng.choice(STATUSES),
                timestamp=f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%SZ}",
            ),
        )
        for (_, flavour, host), metrics in ENDPOINTS.items()
        for metric in metrics
        for second in range(BEGIN, PERIOD.end, 3600)
        for monitoring_host in (GOOD, BAD)
        if rng.random() < 0.8
    ]


SENT = drawn(random.Random(17))
BY_GOOD = [one for one in SENT if one.monitoring_host == GOOD]


@pytest.fixture(params=["sqlite", "postgresql"])
def grid(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Grid]:
    if request.param == "sqlite":
        yield with_topology(f"sqlite:///{tmp_path}/both.db")
    else:
        on_postgresql = with_topology(request.getfixturevalue("postgres_url"))
        yield on_postgresql
        on_postgresql.dispose()


@pytest.fixture(scope="module")
def expected(spark: SparkContext, tmp_path_factory: pytest.TempPathFactory) -> tuple[Facts, Facts]:
    """The facts with the worst result of each time alone, then with those of one host alone."""
    directory = tmp_path_factory.mktemp("alone")
    together = with_topology(f"sqlite:///{directory}/worst.db")
    load_shuffled(together, worst_of(SENT))
    without_bad = with_topology(f"sqlite:///{directory}/good.db")
    load_shuffled(without_bad, BY_GOOD)
    return facts(spark, together, directory), facts(spark, without_bad, directory)


def test_excluding_a_monitoring_host_leaves_what_the_other_measured(
    spark: SparkContext, grid: Grid, tmp_path: Path, expected: tuple[Facts, Facts]
) -> None:
    """A worker node runs each probe for both: what they say differs in the status alone."""
    load_shuffled(grid, SENT)

    together = facts(spark, grid, tmp_path)
    with writing(grid.reporter) as connection:
        add(connection, BAD_IS_WRONG, LATER)
    without_bad = facts(spark, grid, tmp_path)

    assert (together, without_bad) == expected
    assert together != without_bad
    read, by_good = (
        sum(one.record["timestamp"] >= f"{DAY}" for one in sent) for sent in (SENT, BY_GOOD)
    )
    runs = query(
        grid.reader, "SELECT results_read, results_ignored, results_digest FROM report_run"
    )
    assert sum(row[0] for row in runs) == 2 * read
    ignored = [json.loads(row[1]).get("excluded-monitoring-host", 0) for row in runs]
    assert sum(ignored) == read - by_good
    assert len({row[2] for row in runs}) == len(runs) == 4
    with reading(grid.reader) as connection:
        [day] = read_site_days(connection, None, Selection("B"), Period(DAY, DAY))
    evidence = [e for thing in day.things for reason in thing.reasons for e in reason.evidence]
    assert {one.monitoring_host for e in evidence for one in e.results} == {GOOD}
    assert {one.result.monitoring_host for one in day.ignored} == {BAD}
    assert {one.result.measured for one in day.ignored} & {
        one.measured for e in evidence for one in e.results
    }


def worst_of(sent: Iterable[Sent]) -> list[Sent]:
    """For each metric and time the worst result of any host."""
    worst: dict[tuple[str, ...], Sent] = {}
    for one in sorted(sent, key=lambda one: STATUSES.index(one.record["metricStatus"])):
        names = ("hostName", "metricName", "timestamp")
        worst[tuple(one.record[name] for name in names)] = one
    return list(worst.values())


def with_topology(url: str) -> Grid:
    grid = Grid(url)
    for site, flavour, host in ENDPOINTS:
        grid.endpoint(site, flavour, host)
    return grid


def load_shuffled(grid: Grid, sent: Iterable[Sent]) -> None:
    """Load each result twice, as the consumer does, in any order."""
    messages = [metric_message(one.record, nagios_host=one.monitoring_host) for one in sent] * 2
    random.Random(3).shuffle(messages)
    loaded = load(grid.loader, Catalogue(grid.loader), messages, datetime.fromtimestamp(LATER, UTC))
    assert not loaded.dead_letters


def facts(spark: SparkContext, grid: Grid, directory: Path) -> Facts:
    report = profile(directory)
    job.run(spark, grid.reporter, [report], PERIOD, 0, lambda: LATER, lambda stage: None)
    return published_figures(grid.reader, report.name), published_timeline(grid.reader, report.name)
