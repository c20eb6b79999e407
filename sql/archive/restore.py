"""Loads an archived day into the database again, through the class views.

A repeat changes nothing, and neither does restoring a day that the database still has: results are
loaded with the ids and publishers of their messages, and only missing rows of topology and
downtimes. Exclusions are not restored: the database never deletes one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyarrow import parquet as pq  # type: ignore[import-untyped]
from sqlalchemy import Engine, text

from sam_pipeline.schema.identity.identity import operator_identity
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.messages.decode import Row
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.records.classes import (
    DOWNTIME,
    METRIC_OUTPUT,
    SERVICE_ENDPOINT,
    SITE_GROUP,
    MessageClass,
)
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.archive.layout import ENDPOINT, MEMBER, SCHEMAS, STATUSES
from sam_pipeline.sql.archive.manifest import DOWNTIMES, RESULTS, TOPOLOGY, Manifest
from sam_pipeline.sql.archive.store import Store
from sam_pipeline.sql.archive.verify import problems_of_files
from sam_pipeline.sql.database.engine import load_transaction, reading, writing
from sam_pipeline.sql.database.operations import login_name, record_operation
from sam_pipeline.sql.errors import ArchiveDamaged, StatementFailed
from sam_pipeline.sql.loading.batch import MAX_RECORDS, Batch, PendingRow, ViewBatch
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.insert import insert_batch

_NAMES = {
    "detailsData": "details",
    "siteName": "site",
    "summaryData": "summary",
    "voFqan": "fqan",
    "voName": "vo",
}
_NAMES_OF_RESULTS = {**_NAMES, "siteName": "site_hint", "timestamp": "measured_at"}
"""The columns of the files that are not the attribute of the class in snake case."""

_Values = tuple[Mapping[str, str], str | None, str]
"""Attributes, message id and publisher of a row."""


@dataclass
class Restored:
    """Rows by class: those that the database did not have, and those that it had."""

    rows: Counter[str] = field(default_factory=Counter)
    duplicates: Counter[str] = field(default_factory=Counter)


def restore_day(
    engine: Engine,
    store: Store,
    manifest: Manifest,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> Restored:
    """Load a version of a day.

    Raises:
        ArchiveDamaged: a file differs from the manifest; nothing was loaded.
        StatementFailed: the database refuses a row.
        DatabaseAway: repeat the command.
    """
    problems = list(problems_of_files(store, manifest))
    if problems:
        raise ArchiveDamaged(*problems)
    restored = Restored()
    operator = operator_identity(login_name())
    source, filesystem = store.source(), store.source().filesystem()

    def rows_of(kind: str) -> list[dict[str, Any]]:
        [path] = (source.path(file.name) for file in manifest.of_kind(kind))
        rows = pq.read_table(path, filesystem=filesystem, partitioning=None)
        return list(rows.to_pylist())

    topology = rows_of(TOPOLOGY)
    endpoints, members = (
        [row for row in topology if row["record"] == record] for record in (ENDPOINT, MEMBER)
    )
    message_id, catalogue = f"archive:{manifest.day}", Catalogue(engine)
    for message_class, kind, rows in (
        (SERVICE_ENDPOINT, TOPOLOGY, _missing(engine, "report_topology", endpoints)),
        (SITE_GROUP, TOPOLOGY, _missing(engine, "report_site_group", members)),
        (DOWNTIME, DOWNTIMES, _missing_downtimes(engine, rows_of(DOWNTIMES))),
    ):
        columns = _columns(message_class, kind, _NAMES)
        values = [(_as_texts(row, columns), message_id, operator) for row in rows]
        _load(engine, catalogue, message_class.name, values, restored)
    columns, done = _columns(METRIC_OUTPUT, RESULTS, _NAMES_OF_RESULTS), 0
    for file in manifest.of_kind(RESULTS):
        with filesystem.open_input_file(source.path(file.name)) as stream:
            for results in pq.ParquetFile(stream).iter_batches(MAX_RECORDS):
                values = [
                    (
                        {**_as_texts(row, columns), "metricStatus": STATUSES[row["status"]]},
                        row["message_id"],
                        row["publisher"] or operator,
                    )
                    for row in results.to_pylist()
                ]
                catalogue.partitions.make([str(manifest.day)])
                _load(engine, catalogue, METRIC_OUTPUT.name, values, restored)
                on_rows(done := done + len(values))
    fold_all(engine)
    with writing(engine) as connection:
        arguments = {"day": str(manifest.day), "version": str(manifest.version)}
        record_operation(connection, "archive restore", arguments)
    return restored


def _load(
    engine: Engine,
    catalogue: Catalogue,
    class_name: str,
    values: Sequence[_Values],
    restored: Restored,
) -> None:
    view = catalogue.find(class_name)
    if view is None:
        raise StatementFailed(f"{class_name}: the view or its trigger is missing (sam-db check)")
    column, message = {name.lower(): name for name in view.columns}, Message({}, b"")
    rows = [
        PendingRow(
            message,
            message_id,  # type: ignore[arg-type]  # None is stored as NULL, as it was
            publisher,
            Row(number, b"", {column[name.lower()]: value for name, value in texts.items()}),
        )
        for number, (texts, message_id, publisher) in enumerate(values, 1)
    ]
    counts = Counts()
    if rows:
        batch = Batch({view.name: ViewBatch(view, [message], rows)})
        inserted = load_transaction(engine, lambda connection: insert_batch(connection, batch))
        if inserted.failures:
            raise StatementFailed(*(failure.text for failure in inserted.failures[:5]))
        counts = inserted.counts
    restored.rows[class_name] += counts.rows
    restored.duplicates[class_name] += counts.duplicates


def _columns(message_class: MessageClass, kind: str, names: Mapping[str, str]) -> dict[str, str]:
    """The columns of a kind of file by attribute of a class; `names` has the irregular ones."""
    columns = {
        key: names.get(key) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower()
        for key in message_class.keys
    }
    return {key: name for key, name in columns.items() if name in SCHEMAS[kind].names}


def _as_texts(row: Mapping[str, Any], attributes: Mapping[str, str]) -> dict[str, str]:
    """The attributes as a record has them; missing ones are left out."""
    return {
        attribute: format_time(value) if isinstance(value, datetime) else str(value)
        for attribute, column in attributes.items()
        if (value := row[column]) not in (None, "")
    }


def _missing(
    engine: Engine, view: str, rows: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The rows whose key the view does not have."""
    key: tuple[str, ...] = ("site", "host_name", "service_flavour", "vo", "valid_from_s")
    if view == "report_site_group":
        key = ("site", "group_type", "group_name", "valid_from_s")
    with reading(engine) as connection:
        known = set(map(tuple, connection.execute(text(f"SELECT {', '.join(key)} FROM {view}"))))
    return [row for row in rows if tuple(row[name] for name in key) not in known]


def _missing_downtimes(
    engine: Engine, rows: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The downtimes that were not announced, nor cancelled; one with an id may have moved.

    Parts that were announced at different times are one downtime.
    """

    def key(row: Mapping[str, Any]) -> tuple[object, ...]:
        names = tuple(row[name] or "" for name in ("site", "host_name", "service_flavour"))
        by_id = row["downtime_id"] or ""
        return (*names, by_id, "" if by_id else row["start_time"])

    known = set()
    statement = "SELECT siteName, hostName, serviceFlavour, downtimeId, startTime FROM downtime"
    with reading(engine) as connection:
        for site, host, flavour, by_id, start in connection.execute(text(statement)):
            start = datetime.fromisoformat(start) if isinstance(start, str) else start
            names = {"site": site, "host_name": host, "service_flavour": flavour}
            known.add(key({**names, "downtime_id": by_id, "start_time": start}))
    whole = {}
    for row in rows:
        start, end = (datetime.fromtimestamp(row[f"whole_{of}_s"], UTC) for of in ("start", "end"))
        downtime = {**row, "start_time": start, "end_time": end}
        whole[key(downtime)] = downtime
    return [row for by_key, row in whole.items() if by_key not in known]
