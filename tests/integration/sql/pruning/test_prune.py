"""`prune` removes exactly the old rows, and reports do not change."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.removal.pruning import sqlite as prune_sqlite
from sam_pipeline.sql.removal.pruning.partitions import partitions
from tests.support.builders import metric_result
from tests.support.database.old_results import (
    TODAY,
    changed_days,
    days_ago,
    details_by_age,
    everything,
    fill,
    forget_changes,
    horizon,
    prune_now,
    results_by_age,
    results_of,
)
from tests.support.database.sql_rows import insert, query, site_group

ALL, NEWEST = 6, 2
"""The number of results of a day: all, or only the newest of each instance."""


def test_exactly_the_days_before_the_bound_are_removed(engine: Engine) -> None:
    fill(engine, range(6))

    prune_now(engine, results=3)

    assert results_by_age(engine) == {0: ALL, 1: ALL, 2: ALL, 3: ALL, 4: NEWEST}
    assert horizon(engine) == days_ago(3)


def test_batches_that_span_days_leave_nothing_behind(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune_sqlite, "BATCH_ROWS", 4)
    fill(engine, range(6))

    prune_now(engine, results=2, details=1)

    assert results_by_age(engine) == {0: ALL, 1: ALL, 2: ALL, 3: NEWEST}
    assert details_by_age(engine) == {0: ALL, 1: ALL}


def test_the_last_pruned_day_keeps_the_newest_result_of_each_instance(engine: Engine) -> None:
    fill(engine, range(4))
    silent_since_noon = metric_result(metricName="a", timestamp=f"{days_ago(3)}T12:00:00Z")
    silent_for_a_day = metric_result(metricName="b", timestamp=f"{days_ago(4)}T23:59:59Z")
    insert(engine, "metricOutput", silent_since_noon, silent_for_a_day)

    prune_now(engine, results=2)

    rows = query(
        engine,
        "SELECT hostName, metricName, timestamp, summaryData, detailsData FROM metricOutput"
        " WHERE timestamp < :day ORDER BY hostName, metricName",
        day=f"{days_ago(2)}T00:00:00Z",
    )
    metric, summary = "org.sam.CE-JobSubmit", "job finished in 312 s"
    assert rows == [
        ("ce01.example.org", "a", f"{days_ago(3)}T12:00:00Z", summary, None),
        ("ce01.example.org", metric, f"{days_ago(3)}T23:59:59Z", summary, None),
        ("ce02.example.org", metric, f"{days_ago(3)}T23:59:59Z", summary, None),
    ]


def test_the_worst_of_several_newest_results_is_kept(engine: Engine) -> None:
    at_once = [
        metric_result(gatheredAt=gatherer, metricStatus=status, timestamp="2026-11-18T23:00:00Z")
        for gatherer, status in [("a", "OK"), ("b", "CRITICAL"), ("c", "UNKNOWN")]
    ]
    earlier = metric_result(metricStatus="CRITICAL", timestamp="2026-11-18T22:00:00Z")
    insert(engine, "metricOutput", *at_once, earlier)
    numbers = dict(query(engine, "SELECT gathered_at, result_id FROM report_result"))

    prune_now(engine, results=1)

    remaining = query(engine, "SELECT gathered_at, status, result_id FROM report_result")
    assert remaining == [("b", "CRITICAL", numbers["b"])]


def test_the_input_of_the_next_report_is_unchanged(engine: Engine) -> None:
    fill(engine, range(5))
    insert(engine, "metricOutput", *results_of(days_ago(3), metricName="b", voName="atlas"))
    inputs = """
        SELECT * FROM report_result AS r
        WHERE measured_at_s >= :start OR measured_at_s = (
            SELECT max(measured_at_s) FROM report_result AS newest
            WHERE newest.instance_id = r.instance_id AND newest.measured_at_s < :start
        )
        ORDER BY result_id
    """
    start = {"start": _second(engine, f"{days_ago(2)}T00:00:00Z")}
    before = query(engine, inputs, **start), query(engine, "SELECT * FROM current_status")

    prune_now(engine, results=2, details=1)

    assert query(engine, inputs, **start) == before[0]
    assert len(before[0]) == 3 * ALL + 2 * NEWEST
    assert sorted(query(engine, "SELECT * FROM current_status")) == sorted(before[1])


def test_no_day_is_marked_as_changed(engine: Engine) -> None:
    fill(engine, range(5))
    forget_changes(engine)

    prune_now(engine, results=2, details=1)

    assert changed_days(engine) == set()


def test_changes_of_pruned_days_are_deleted(engine: Engine) -> None:
    fill(engine, range(1, 5))
    assert changed_days(engine) >= {str(days_ago(age)) for age in range(1, 5)}

    prune_now(engine, results=2)

    assert {day for day in changed_days(engine) if day < str(days_ago(1))} == {str(days_ago(2))}


def test_details_have_an_age_of_their_own(engine: Engine) -> None:
    fill(engine, range(5))

    prune_now(engine, details=2)

    assert results_by_age(engine) == dict.fromkeys(range(5), ALL)
    assert details_by_age(engine) == dict.fromkeys(range(3), ALL)
    assert horizon(engine) is None


def test_details_are_removed_with_their_results(engine: Engine) -> None:
    fill(engine, range(5))

    prune_now(engine, results=2, details=4)

    assert results_by_age(engine) == {0: ALL, 1: ALL, 2: ALL, 3: NEWEST}
    assert details_by_age(engine) == {0: ALL, 1: ALL, 2: ALL}


def test_the_claims_about_a_row_are_removed_together_with_the_results(engine: Engine) -> None:
    fill(engine, range(6))
    for group, age in (("old", 5), ("old", 4), ("contested", 5), ("contested", 1)):
        received = f"{days_ago(age)}T12:00:00Z"
        row = site_group(groupName=group, weight=age, receivedAt=received)
        insert(engine, "siteGroup", row)

    prune_now(engine, results=3)

    assert query(engine, "SELECT record LIKE '%contested%' FROM claim") == [(True,), (True,)]
    assert len(query(engine, "SELECT groupName FROM siteGroup")) == 2


def test_pruning_again_changes_nothing(engine: Engine) -> None:
    fill(engine, range(5))
    prune_now(engine, results=2, details=1)
    before = everything(engine)

    pruned = prune_now(engine, results=2, details=1)

    assert everything(engine) == before
    assert not pruned.results.rows and not pruned.results.partitions
    assert not pruned.details.rows and not pruned.details.partitions


def test_a_later_prune_removes_what_an_earlier_one_kept(engine: Engine) -> None:
    fill(engine, range(6))
    prune_now(engine, results=4)
    assert results_by_age(engine) == {0: ALL, 1: ALL, 2: ALL, 3: ALL, 4: ALL, 5: NEWEST}

    prune_now(engine, results=2)

    assert results_by_age(engine) == {0: ALL, 1: ALL, 2: ALL, 3: NEWEST}
    assert horizon(engine) == days_ago(2)


def test_the_horizon_never_moves_back_and_late_results_are_kept(engine: Engine) -> None:
    fill(engine, range(6))
    prune_now(engine, results=2)
    insert(engine, "metricOutput", *results_of(days_ago(4)), *results_of(days_ago(7)))

    prune_now(engine, results=5)

    assert horizon(engine) == days_ago(2)
    assert results_by_age(engine) == {0: ALL, 1: ALL, 2: ALL, 3: NEWEST, 4: ALL}


def test_a_dry_run_counts_and_removes_nothing(engine: Engine) -> None:
    fill(engine, range(6))
    before = everything(engine)

    counted = prune_now(engine, results=3, details=1, dry_run=True)

    assert everything(engine) == before
    pruned = prune_now(engine, results=3, details=1)
    assert counted.results.rows == pruned.results.rows
    assert counted.details.rows == pruned.details.rows
    assert counted.results.partitions == pruned.results.partitions
    assert counted.details.partitions == pruned.details.partitions
    assert (pruned.results.rows or 0) + (pruned.results.partitions or 0) > 0


def test_a_late_result_of_a_pruned_day_is_loaded_and_pruned_next_time(engine: Engine) -> None:
    fill(engine, range(6))
    prune_now(engine, results=2)

    insert(engine, "metricOutput", *results_of(days_ago(5)), *results_of(days_ago(3)))
    assert results_by_age(engine) == {0: ALL, 1: ALL, 2: ALL, 3: ALL, 5: ALL}

    prune_now(engine, results=2)
    assert results_by_age(engine) == {0: ALL, 1: ALL, 2: ALL, 3: NEWEST}


def test_late_results_of_pruned_days_do_not_change_the_current_status(engine: Engine) -> None:
    insert(engine, "metricOutput", *results_of(days_ago(6), metricStatus="WARNING"))
    fill(engine, range(6))
    status = "SELECT host_name, status, since, measured_at FROM current_status ORDER BY host_name"
    before = query(engine, status)
    prune_now(engine, results=2)

    insert(
        engine,
        "metricOutput",
        *results_of(days_ago(8), metricStatus="CRITICAL"),
        *results_of(days_ago(4), gatheredAt="late.example.org"),
    )

    assert query(engine, status) == before
    assert before[0][1:3] == ("OK", f"{days_ago(5)}T00:00:00Z")


def test_an_empty_database_gets_a_horizon(engine: Engine) -> None:
    prune_now(engine, results=2, details=1)

    assert horizon(engine) == days_ago(2)


def test_emptied_partitions_are_dropped(engine: Engine) -> None:
    fill(engine, range(6))

    pruned = prune_now(engine, results=3, details=1)

    with reading(engine) as connection:
        remaining = {
            (partition.parent, (TODAY - partition.day).days) for partition in partitions(connection)
        }
    results = {age for parent, age in remaining if parent == "metric_result" and age >= 0}
    details = {age for parent, age in remaining if parent == "metric_result_detail" and age >= 0}
    if engine.dialect.name == "postgresql":
        assert (results, details) == ({0, 1, 2, 3, 4}, {0, 1})
        assert (pruned.results.partitions, pruned.details.partitions) == (2, 4)
        assert pruned.results.bytes and pruned.details.bytes
    assert (pruned.left, pruned.not_dropped) == ((), ())


def _second(engine: Engine, moment: str) -> int:
    epoch = {
        "sqlite": "SELECT unixepoch(:moment)",
        "postgresql": "SELECT CAST(extract(epoch FROM CAST(:moment AS timestamptz)) AS bigint)",
    }
    with writing(engine) as connection:
        return int(connection.scalar(text(epoch[engine.dialect.name]), {"moment": moment}) or 0)
