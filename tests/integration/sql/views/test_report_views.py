"""The views that reports read and write."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.schema.times import parse_time
from sam_pipeline.sql.database.engine import writing
from tests.support.builders import metric_result
from tests.support.database.own_class import run
from tests.support.database.sql_rows import downtime, insert, query, service_endpoint, site_group

MOMENT = "2026-11-20T12:00:00Z"
MOMENT_S = int(datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp())
NONE = dict.fromkeys(("warning_s", "unknown_s", "missing_s", "downtime_s", "excluded_s"), 0)
SECONDS = {"ok_s": 86000, "critical_s": 400, **NONE}


def at(engine: Engine, moment: str) -> object:
    """A time as the tables of the dialect store it."""
    when = parse_time(moment)
    return int(when.timestamp()) if engine.dialect.name == "sqlite" else when


def write(engine: Engine, table: str, values: Mapping[str, object], **more: object) -> None:
    row = {**values, **more}
    names, marks = ", ".join(row), ", ".join(f":{name}" for name in row)
    with writing(engine) as connection:
        connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({marks})"), row)


def start_run(engine: Engine, until: str | None = None) -> int:
    of_day = {"report": "critical", "day": "2026-11-20", "state": "running", "input_digest": "abc"}
    times = {"started_at": at(engine, MOMENT), "until": until and at(engine, until)}
    write(engine, "run", of_day, **times)
    return int(query(engine, "SELECT max(run_id) FROM run")[0][0])


def publish(engine: Engine, run_id: int) -> None:
    run(
        engine,
        "INSERT INTO published_run (report, day, run_id)"
        f" VALUES ('critical', '2026-11-20', {run_id})"
        " ON CONFLICT (report, day) DO UPDATE SET run_id = excluded.run_id",
    )


FIGURES: Mapping[str, Mapping[str, str]] = {
    "endpoint": {"site": "S", "service_flavour": "CE", "host_name": "a.example.org"},
    "service": {"site": "S", "service_flavour": "CE"},
    "function": {"site": "S", "function": "compute"},
    "site": {"site": "S"},
}


@pytest.mark.parametrize("level", FIGURES)
def test_readers_see_only_the_published_run(engine: Engine, level: str) -> None:
    first, second = start_run(engine), start_run(engine, until="2026-11-20T13:00:00Z")
    for number, share in ((first, "99.50001"), (second, None)):
        figures = {"run_id": number, "availability": share, "reliability": share}
        write(engine, f"{level}_figure", figures, **FIGURES[level], **SECONDS)
    statement = f"SELECT run_id, day, availability, until FROM {level}_availability"
    assert query(engine, statement) == []

    publish(engine, first)
    [row] = query(engine, statement)
    assert (row[0], str(row[1]), float(row[2]), row[3]) == (first, "2026-11-20", 99.50001, None)

    publish(engine, second)
    [row] = query(engine, statement)
    assert (row[0], row[2], row[3]) == (second, None, "2026-11-20T13:00:00Z")
    run(engine, "DELETE FROM published_run", "DELETE FROM run")
    assert query(engine, f"SELECT * FROM {level}_figure") == []


def test_groups_and_timelines_follow_the_published_run(engine: Engine) -> None:
    number = start_run(engine)
    of_run = {"run_id": number}
    group = {**of_run, "group_type": "federation", "group_name": "North"}
    write(engine, "group_figure", group, availability="50.5", sites_expected=2, sites_known=1)
    write(engine, "group_site", group, site="S", weight=3)
    day = {
        "start_time": at(engine, "2026-11-20T00:00:00Z"),
        "end_time": at(engine, "2026-11-21T00:00:00Z"),
    }
    names = dict.fromkeys(("service_flavour", "host_name", "metric_name", "function"), "")
    segment = {**of_run, **names, **day, "level": "site", "site": "S", "status": "MISSING"}
    write(engine, "timeline_segment", segment)
    change = {"level": "site", "names": '{"site": "S"}', "old": "99.0", "new": "98.0"}
    write(engine, "report_change_row", of_run, **change, reason="late results")

    publish(engine, number)

    for statement, row in (
        ("SELECT group_name, sites_known, run_id FROM group_availability", ("North", 1, number)),
        ("SELECT site, weight FROM report_group_site", ("S", 3)),
        (
            "SELECT level, start_time, end_time, status FROM status_timeline",
            ("site", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z", "MISSING"),
        ),
        (
            "SELECT report, old, new, reason FROM report_change",
            ("critical", "99.0", "98.0", "late results"),
        ),
        (
            "SELECT state, started_at, finished_at, input_digest FROM report_run",
            ("running", MOMENT, None, "abc"),
        ),
    ):
        assert query(engine, statement) == [row]


def test_a_result_has_its_names_and_epoch_second(engine: Engine) -> None:
    result = metric_result(performanceData="time=3s", monitoringHost="mon.org", messageId="m")
    insert(engine, "metricOutput", result)

    columns = (
        "host_name, service_flavour, metric_name, vo, fqan, measured_at, measured_at_s, status,"
        " gathered_at, monitoring_host, summary, performance_data, message_id"
    )
    assert query(engine, f"SELECT {columns} FROM report_result") == [
        (
            *("ce01.example.org", "CE", "org.sam.CE-JobSubmit", "ops", "", MOMENT, MOMENT_S, "OK"),
            *("wn17.example.org", "mon.org", "job finished in 312 s", "time=3s", "m"),
        )
    ]
    [(result_id, instance_id)] = query(engine, "SELECT result_id, instance_id FROM report_result")
    assert (type(result_id), type(instance_id)) == (int, int)


def test_topology_groups_and_downtimes_have_their_times(engine: Engine) -> None:
    insert(engine, "serviceEndpoint", service_endpoint(validTo=MOMENT, monitored="N"))
    insert(engine, "siteGroup", site_group())
    insert(engine, "downtime", downtime(endTime=MOMENT))

    for view, columns, row in (
        (
            "report_topology",
            "site, host_name, vo, production, monitored, valid_to, valid_to_s",
            ("EXAMPLE-LCG2", "ce01.example.org", "", None, "N", MOMENT, MOMENT_S),
        ),
        (
            "report_site_group",
            "site, group_type, group_name, weight, valid_to, valid_to_s",
            ("EXAMPLE-LCG2", "federation", "North", 3, None, None),
        ),
        (
            "report_downtime",
            "downtime_id, start_time, end_time, end_s, classification",
            ("D1", "2026-11-20T08:00:00Z", MOMENT, MOMENT_S, "SCHEDULED"),
        ),
    ):
        assert query(engine, f"SELECT {columns} FROM {view}") == [row]


STATUSES = "SELECT site, vo, status, since, measured_at, summary FROM current_status ORDER BY 1, 2"


@pytest.mark.parametrize("source", ["gatheredAt", "monitoringHost"])
def test_current_status_shows_the_worse_of_two_results_of_one_time(
    engine: Engine, source: str
) -> None:
    for of, status, summary in (("a", "WARNING", "slow"), ("b", "OK", "fine")):
        result = metric_result(**{source: of}, metricStatus=status, summaryData=summary)
        insert(engine, "metricOutput", result)

    assert query(engine, STATUSES) == [("", "ops", "WARNING", MOMENT, MOMENT, "slow")]


def test_current_status_is_by_vo_and_shown_at_every_present_site(engine: Engine) -> None:
    for site, valid_from, more in (
        ("ONE", 2020, {}),
        ("ONE", 2021, {"voName": "ops"}),
        ("TWO", 2020, {}),
        ("PAST", 2020, {"validTo": "2021-01-01T00:00:00Z"}),
        ("FUTURE", 2100, {}),
    ):
        start = f"{valid_from}-01-01T00:00:00Z"
        insert(engine, "serviceEndpoint", service_endpoint(siteName=site, validFrom=start, **more))
    insert(
        engine,
        "metricOutput",
        metric_result(),
        metric_result(voName="atlas", metricStatus="CRITICAL"),
        metric_result(hostName="nowhere.example.org"),
    )

    assert [row[:3] for row in query(engine, STATUSES)] == [
        ("", "ops", "OK"),
        ("ONE", "atlas", "CRITICAL"),
        ("ONE", "ops", "OK"),
        ("TWO", "atlas", "CRITICAL"),
        ("TWO", "ops", "OK"),
    ]


# Views that join only the tables whose columns are selected ---------------------------------------

NARROW = {
    "sqlite": "measured_at_s, status_code FROM report_result WHERE measured_at_s >= 1000000",
    "postgresql": "measured_at, status_code FROM report_result WHERE measured_at >= '2020-01-01Z'",
}


def plan(engine: Engine, statement: str) -> str:
    explain = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else "EXPLAIN"
    return "\n".join(str(row[-1]) for row in query(engine, f"{explain} {statement}"))


def test_results_without_names_are_read_from_one_table(engine: Engine) -> None:
    insert(engine, "metricOutput", metric_result())

    narrow = plan(
        engine, f"SELECT instance_id, {NARROW[engine.dialect.name]} AND result_id <= 1000"
    )
    wide = plan(engine, "SELECT host_name, status, monitoring_host FROM report_result")

    assert "JOIN" not in narrow.upper(), narrow
    assert "JOIN" in wide.upper()
    if engine.dialect.name == "sqlite":
        assert len(narrow.splitlines()) == 1, narrow


@pytest.mark.parametrize(
    ("view", "columns"),
    [
        ("report_instance", "instance_id, host_name, service_flavour, metric_name, vo, fqan"),
        ("report_source", "source_id, publisher"),
    ],
)
def test_an_instance_and_a_source_have_the_names_that_their_results_show(
    engine: Engine, view: str, columns: str
) -> None:
    insert(engine, "metricOutput", metric_result(publisher="key:a"))

    shown = query(engine, f"SELECT {columns} FROM report_result")

    assert query(engine, f"SELECT {columns} FROM {view}") == shown
    assert len(shown) == 1
    assert {"key:a", "ce01.example.org"} & {*shown[0]}
