"""The views that reports read join only the tables whose columns are selected."""

from __future__ import annotations

from sqlalchemy import Engine

from tests.support.database.sql_rows import EXAMPLES, insert, query

NARROW = """
    SELECT instance_id, {time}, status_code FROM report_result
    WHERE {time} >= {start} AND result_id <= 1000
"""
WINDOW = {
    "sqlite": {"time": "measured_at_s", "start": "1000000"},
    "postgresql": {"time": "measured_at", "start": "'2020-01-01Z'"},
}
EXPLAIN = {"sqlite": "EXPLAIN QUERY PLAN", "postgresql": "EXPLAIN"}


def plan(engine: Engine, statement: str) -> str:
    rows = query(engine, f"{EXPLAIN[engine.dialect.name]} {statement}")
    return "\n".join(str(row[-1]) for row in rows)


def test_results_without_names_are_read_from_one_table(engine: Engine) -> None:
    insert(engine, "metricOutput", EXAMPLES["metricOutput"])

    narrow = plan(engine, NARROW.format(**WINDOW[engine.dialect.name]))
    wide = plan(engine, "SELECT host_name, status, monitoring_host FROM report_result")

    assert "JOIN" not in narrow.upper(), narrow
    assert "JOIN" in wide.upper()
    if engine.dialect.name == "sqlite":
        assert len(narrow.splitlines()) == 1, narrow


def test_an_instance_has_the_names_that_its_results_show(engine: Engine) -> None:
    insert(engine, "metricOutput", EXAMPLES["metricOutput"])

    names = "instance_id, host_name, service_flavour, metric_name, vo, fqan"
    shown = query(engine, f"SELECT {names} FROM report_result")

    assert query(engine, f"SELECT {names} FROM report_instance") == shown
    assert len(shown) == 1


def test_a_source_has_the_publisher_that_its_results_show(engine: Engine) -> None:
    insert(engine, "metricOutput", {**EXAMPLES["metricOutput"], "publisher": "key:a"})

    shown = query(engine, "SELECT source_id, publisher FROM report_result")

    assert query(engine, "SELECT source_id, publisher FROM report_source") == shown
    assert [publisher for _, publisher in shown] == ["key:a"]
