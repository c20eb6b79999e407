"""The outcome of each message of a batch, for those who asked for it."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Engine

from sam_pipeline.schema.messages.message import CLASS, Message
from sam_pipeline.schema.records.classes import CHECK_CLASS
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.load import Loaded, load
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database.roles import acting_as


def load_all(engine: Engine, *messages: Message, report: Collection[int] | None = None) -> Loaded:
    asked = range(len(messages)) if report is None else report
    with acting_as("loader", engine) as loader:
        return load(loader, Catalogue(loader), messages, NOW, report=asked)


def counts(loaded: Loaded) -> list[tuple[int, int, list[tuple[int, str]]]]:
    """Rows, duplicates, and numbers and reasons of the failures, by position."""
    return [
        (
            report.rows,
            report.duplicates,
            [(failure.number, failure.reason) for failure in report.failures],
        )
        for _, report in sorted(loaded.reports.items())
    ]


def results(*names: str, **changes: str) -> Message:
    return metric_message(
        *(metric_result(hostName=f"{name}.example.org", **changes) for name in names)
    )


def test_a_mixed_batch_reports_each_message(engine: Engine) -> None:
    load_all(engine, results("known"))
    bad = metric_result(metricStatus="FINE")
    unknown = Message({CLASS: "weatherReport"}, b"wind: 3\nEOT\n")
    check = Message({CLASS: CHECK_CLASS}, b"")

    loaded = load_all(
        engine,
        results("a", "b"),
        results("known"),
        metric_message(bad, metric_result(hostName="c.example.org")),
        metric_message(bad),
        unknown,
        check,
    )

    assert counts(loaded) == [
        (2, 0, []),
        (0, 1, []),
        (1, 0, [(1, "bad-status")]),
        (0, 0, [(1, "bad-status")]),
        (0, 0, [(0, "unknown-class")]),
        (0, 0, []),
    ]


def test_only_those_asked_for_are_reported(engine: Engine) -> None:
    loaded = load_all(engine, results("a"), results("b"), results("c"), report=[1])

    assert loaded.reports.keys() == {1}
    assert load_all(engine, results("d"), report=[]).reports == {}
