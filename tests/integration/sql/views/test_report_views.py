"""The views that reports and dashboards read."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from tests.support.builders import metric_result
from tests.support.database.sql_rows import insert, query, service_endpoint

STATUSES = "SELECT site, vo, status FROM current_status ORDER BY 1, 2"


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

    assert query(engine, STATUSES) == [
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
