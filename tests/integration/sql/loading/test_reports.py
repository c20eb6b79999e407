"""The outcome of each message of a batch, for those who asked for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import timedelta
from random import Random

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.messages.message import CLASS, Message, new_message
from sam_pipeline.schema.records.classes import CHECK_CLASS
from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.load import Loaded, load
from tests.integration.sql.loading.test_claims import LOSING, TRUE_ROWS, WINNING
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import name_too_long_for


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


def test_many_refused_records_of_a_message_are_one_failure(engine: Engine) -> None:
    bad = [metric_result(hostName=f"wn{n}.example.org", metricStatus="FINE") for n in range(25)]

    loaded = load_all(engine, metric_message(*bad, metric_result()))

    assert counts(loaded) == [(1, 0, [(0, "bad-status")])]


def test_a_message_that_is_split_by_days_is_reported_once(engine: Engine) -> None:
    days = [NOW - timedelta(days=n) for n in range(60)]
    records = [metric_result(timestamp=f"{day:%Y-%m-%dT%H:%M:%SZ}") for day in days]
    long, other = metric_message(*records), results("other")

    first, second = load_all(engine, long, other), load_all(engine, other, long)

    assert counts(first) == [(60, 0, []), (1, 0, [])]
    assert counts(second) == [(0, 1, []), (0, 60, [])]


def test_of_a_message_that_arrives_twice_in_a_batch_the_second_is_a_duplicate(
    engine: Engine,
) -> None:
    message = results("a", "b")

    loaded = load_all(engine, message, Message(*message))

    assert counts(loaded) == [(2, 0, []), (0, 2, [])]


def test_records_that_the_database_refuses_do_not_blur_the_duplicates_of_others(
    engine: Engine,
) -> None:
    long_name = name_too_long_for("metric", engine)
    names = [f"wn{number:02d}" for number in range(40)]
    load_all(engine, *(results(name) for name in names[::3]))
    batch = [results(name) for name in names]
    batch[7], batch[23] = (results(names[at], metricName=long_name) for at in (7, 23))

    loaded = load_all(engine, *batch)

    expected = [(int(n % 3 > 0), int(n % 3 == 0), []) for n in range(40)]
    expected[7] = expected[23] = (0, 0, [(1, "refused-by-database")])
    assert counts(loaded) == expected


KEYS = {
    "metricOutput": ("hostName", "ce{}.example.org"),
    "serviceEndpoint": ("hostName", "ce{}.example.org"),
    "siteGroup": ("siteName", "SITE-{}"),
    "siteContact": ("siteName", "SITE-{}"),
    "downtime": ("hostName", "ce{}.example.org"),
}
"""A part of the natural key, and values for it."""


@pytest.mark.parametrize("class_name", KEYS)
def test_the_duplicates_of_a_class_are_attributed_to_their_messages(
    engine: Engine, class_name: str
) -> None:
    key, form = KEYS[class_name]

    def record(number: int, changes: Mapping[str, object] | None = None) -> str:
        row = {**TRUE_ROWS[class_name], **(changes or {}), key: form.format(number)}
        return write_wlcg({name: str(value) for name, value in row.items()})

    load_all(engine, new_message(class_name, "".join(record(n) for n in range(30))))
    chance = Random(22)
    records = [
        *((record(n), "duplicate") for n in range(10)),
        *((record(n, LOSING[class_name]), "duplicate") for n in range(10, 20)),
        *((record(n, WINNING[class_name]), "row") for n in range(20, 30)),
        *((record(n), "row") for n in range(30, 40)),
    ]
    chance.shuffle(records)
    records += [(record(n), "duplicate") for n in range(30, 40)]  # repeats within the batch
    bodies = [records[at : at + 3] for at in range(0, len(records), 3)]
    messages = [new_message(class_name, "".join(text for text, _ in body)) for body in bodies]

    loaded = load_all(engine, *messages)

    expected = [Counter(outcome for _, outcome in body) for body in bodies]
    assert counts(loaded) == [(count["row"], count["duplicate"], []) for count in expected]
    assert (loaded.rows, loaded.duplicates) == (20, 30)
