"""The views that reports read and write."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.schema.times import parse_time
from sam_pipeline.sql.database.engine import writing
from tests.support.builders import metric_result
from tests.support.database.sql_rows import downtime, insert, query, service_endpoint, site_group

MOMENT = "2026-11-20T12:00:00Z"
MOMENT_S = int(datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp())
SECONDS = {
    f"{status}_s": seconds
    for status, seconds in [
        ("ok", 86000),
        ("warning", 0),
        ("critical", 400),
        ("unknown", 0),
        ("missing", 0),
        ("downtime", 0),
        ("excluded", 0),
    ]
}


def at(engine: Engine, moment: str) -> object:
    """A time as the tables of the dialect store it."""
    when = parse_time(moment)
    return int(when.timestamp()) if engine.dialect.name == "sqlite" else when


def write(engine: Engine, table: str, **values: object) -> None:
    names, marks = ", ".join(values), ", ".join(f":{name}" for name in values)
    with writing(engine) as connection:
        connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({marks})"), values)


def start_run(engine: Engine, until: str | None = None) -> int:
    write(
        engine,
        "run",
        report="critical",
        day="2026-11-20",
        started_at=at(engine, MOMENT),
        state="running",
        until=at(engine, until) if until else None,
        input_digest="abc",
    )
    return int(query(engine, "SELECT max(run_id) FROM run")[0][0])


def publish(engine: Engine, run_id: int) -> None:
    with writing(engine) as connection:
        connection.execute(
            text("""
                INSERT INTO published_run (report, day, run_id)
                VALUES ('critical', '2026-11-20', :run_id)
                ON CONFLICT (report, day) DO UPDATE SET run_id = excluded.run_id
            """),
            {"run_id": run_id},
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
    for run_id, availability in ((first, "99.50001"), (second, None)):
        write(
            engine,
            f"{level}_figure",
            run_id=run_id,
            availability=availability,
            reliability=availability,
            **FIGURES[level],
            **SECONDS,
        )
    statement = f"SELECT run_id, day, availability, until FROM {level}_availability"
    assert query(engine, statement) == []

    publish(engine, first)
    [row] = query(engine, statement)
    assert (row[0], str(row[1]), float(row[2]), row[3]) == (first, "2026-11-20", 99.50001, None)

    publish(engine, second)
    [row] = query(engine, statement)
    assert (row[0], row[2], row[3]) == (second, None, "2026-11-20T13:00:00Z")


def test_groups_and_timelines_follow_the_published_run(engine: Engine) -> None:
    run_id = start_run(engine)
    group = {"run_id": run_id, "group_type": "federation", "group_name": "North"}
    write(engine, "group_figure", **group, availability="50.5", sites_expected=2, sites_known=1)
    write(engine, "group_site", **group, site="S", weight=3)
    write(
        engine,
        "timeline_segment",
        run_id=run_id,
        level="site",
        site="S",
        service_flavour="",
        host_name="",
        metric_name="",
        function="",
        start_time=at(engine, "2026-11-20T00:00:00Z"),
        end_time=at(engine, "2026-11-21T00:00:00Z"),
        status="MISSING",
    )
    write(
        engine,
        "report_change_row",
        run_id=run_id,
        level="site",
        names='{"site": "S"}',
        old="99.0",
        new="98.0",
        reason="late results",
    )

    publish(engine, run_id)

    groups = query(engine, "SELECT group_name, sites_known, run_id FROM group_availability")
    assert groups == [("North", 1, run_id)]
    assert query(engine, "SELECT site, weight FROM report_group_site") == [("S", 3)]
    timeline = query(engine, "SELECT level, start_time, end_time, status FROM status_timeline")
    assert timeline == [("site", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z", "MISSING")]
    changes = query(engine, "SELECT report, old, new, reason FROM report_change")
    assert changes == [("critical", "99.0", "98.0", "late results")]
    runs = query(engine, "SELECT state, started_at, finished_at, input_digest FROM report_run")
    assert runs == [("running", MOMENT, None, "abc")]


def test_deleting_a_run_deletes_its_rows(engine: Engine) -> None:
    run_id = start_run(engine)
    write(engine, "site_figure", run_id=run_id, site="S", **SECONDS)

    with writing(engine) as connection:
        connection.execute(text("DELETE FROM run"))

    assert query(engine, "SELECT * FROM site_figure") == []


def test_a_result_has_its_names_and_epoch_second(engine: Engine) -> None:
    insert(
        engine,
        "metricOutput",
        metric_result(performanceData="time=3s", monitoringHost="mon.example.org", messageId="m"),
    )

    results = query(
        engine,
        """
        SELECT host_name, service_flavour, metric_name, vo, fqan, measured_at, measured_at_s,
            status, gathered_at, monitoring_host, summary, performance_data, message_id
        FROM report_result
        """,
    )
    assert results == [
        (
            "ce01.example.org",
            "CE",
            "org.sam.CE-JobSubmit",
            "ops",
            "",
            MOMENT,
            MOMENT_S,
            "OK",
            "wn17.example.org",
            "mon.example.org",
            "job finished in 312 s",
            "time=3s",
            "m",
        )
    ]
    [(result_id, instance_id)] = query(engine, "SELECT result_id, instance_id FROM report_result")
    assert (type(result_id), type(instance_id)) == (int, int)


def test_topology_groups_and_downtimes_have_their_times(engine: Engine) -> None:
    insert(engine, "serviceEndpoint", service_endpoint(validTo=MOMENT, monitored="N"))
    insert(engine, "siteGroup", site_group())
    insert(engine, "downtime", downtime(endTime=MOMENT))

    topology = query(
        engine,
        """
        SELECT site, host_name, vo, production, monitored, valid_to, valid_to_s
        FROM report_topology
        """,
    )
    groups = query(
        engine,
        "SELECT site, group_type, group_name, weight, valid_to, valid_to_s FROM report_site_group",
    )
    downtimes = query(
        engine,
        "SELECT downtime_id, start_time, end_time, end_s, classification FROM report_downtime",
    )
    assert topology == [("EXAMPLE-LCG2", "ce01.example.org", "", None, "N", MOMENT, MOMENT_S)]
    assert groups == [("EXAMPLE-LCG2", "federation", "North", 3, None, None)]
    assert downtimes == [("D1", "2026-11-20T08:00:00Z", MOMENT, MOMENT_S, "SCHEDULED")]


def statuses(engine: Engine) -> list[tuple[object, ...]]:
    return query(
        engine,
        """
        SELECT site, metric_name, vo, status, since, measured_at, summary
        FROM current_status ORDER BY 1, 2, 3
        """,
    )


@pytest.mark.parametrize("source", ["gatheredAt", "monitoringHost"])
def test_current_status_shows_the_worse_of_two_results_of_one_time(
    engine: Engine, source: str
) -> None:
    insert(
        engine,
        "metricOutput",
        metric_result(**{source: "a"}, metricStatus="WARNING", summaryData="slow"),
        metric_result(**{source: "b"}, metricStatus="OK", summaryData="fine"),
    )

    assert [row[3:] for row in statuses(engine)] == [("WARNING", MOMENT, MOMENT, "slow")]


def test_current_status_is_by_vo_and_shown_at_every_present_site(engine: Engine) -> None:
    insert(
        engine,
        "serviceEndpoint",
        service_endpoint(siteName="ONE", validFrom="2020-01-01T00:00:00Z"),
        service_endpoint(siteName="ONE", validFrom="2021-01-01T00:00:00Z", voName="ops"),
        service_endpoint(siteName="TWO", validFrom="2020-01-01T00:00:00Z"),
        service_endpoint(
            siteName="PAST", validFrom="2020-01-01T00:00:00Z", validTo="2021-01-01T00:00:00Z"
        ),
        service_endpoint(siteName="FUTURE", validFrom="2100-01-01T00:00:00Z"),
    )
    insert(
        engine,
        "metricOutput",
        metric_result(),
        metric_result(voName="atlas", metricStatus="CRITICAL"),
        metric_result(hostName="nowhere.example.org"),
    )

    assert [(row[0], row[2], row[3]) for row in statuses(engine)] == [
        ("", "ops", "OK"),
        ("ONE", "atlas", "CRITICAL"),
        ("ONE", "ops", "OK"),
        ("TWO", "atlas", "CRITICAL"),
        ("TWO", "ops", "OK"),
    ]


# What reports read: views that join only the tables whose columns are selected --------------------

NARROW = """
    SELECT instance_id, {time}, status_code FROM report_result
    WHERE {time} >= {start} AND result_id <= 1000
"""
WINDOW = {
    "sqlite": {"time": "measured_at_s", "start": "1000000"},
    "postgresql": {"time": "measured_at", "start": "'2020-01-01Z'"},
}


def plan(engine: Engine, statement: str) -> str:
    explain = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else "EXPLAIN"
    return "\n".join(str(row[-1]) for row in query(engine, f"{explain} {statement}"))


def test_results_without_names_are_read_from_one_table(engine: Engine) -> None:
    insert(engine, "metricOutput", metric_result())

    narrow = plan(engine, NARROW.format(**WINDOW[engine.dialect.name]))
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
