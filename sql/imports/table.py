"""`sam-db import csv`: loads topology, groups or downtimes from a table, all lines or none."""

from __future__ import annotations

import csv
import io
import tempfile
from argparse import ArgumentTypeError
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import BinaryIO

from sqlalchemy import Connection, Engine

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.messages.message import JSON, Message, chunks
from sam_pipeline.schema.program.wording import did_you_mean
from sam_pipeline.schema.records.classes import DOWNTIME, TIME_KEYS, MessageClass, Names
from sam_pipeline.schema.records.input_file import BLOCK_BYTES, InputFile
from sam_pipeline.schema.records.json_form import write_json
from sam_pipeline.schema.records.normalise import Limits, normalise
from sam_pipeline.schema.records.text import Record
from sam_pipeline.schema.times import format_time, parse_time
from sam_pipeline.sql.database.engine import load_transaction
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_changes import RowChange
from sam_pipeline.sql.imports.records import BATCH_BYTES, record_message
from sam_pipeline.sql.loading.batch import LINE
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.insert import insert_batch
from sam_pipeline.sql.loading.load import decode_batch, refuse_broken_class
from sam_pipeline.sql.topology.view_rows import Row, key_of, stored_rows

BATCH_LINES = 1_000
LONGEST_VALUE = 1024 * 1024


@dataclass(frozen=True)
class BadLine:
    """A line that is not a valid row: its number in the file, and the reason."""

    line: int
    text: str


class RolledBack(Exception):
    """The end of a dry run, or of a table with refused lines; raised to roll it back."""


@dataclass
class CsvTable:
    """A CSV file with rows of one class, which can be read repeatedly.

    Its times have the `time_format`, or one of those of records.
    """

    name: str
    file: BinaryIO
    message_class: MessageClass
    delimiter: str = ","
    time_format: str | None = None

    def __post_init__(self) -> None:
        csv.field_size_limit(LONGEST_VALUE)
        _, cells = next(self._lines(), (1, []))
        if isinstance(cells, BadLine):
            raise BadInput(f"{self.name}:1: {cells.text}; nothing was imported")
        self._header = read_header(cells, self.message_class, self.name, self.delimiter)

    def read(self) -> Iterator[tuple[int, Record] | BadLine]:
        """The lines below the header: line numbers with records of the class, or bad lines."""
        now, columns = datetime.now(UTC), self._header
        lines = self._lines()
        next(lines, None)
        for line, cells in lines:
            if isinstance(cells, BadLine):
                yield cells
            elif len(cells) != len(columns):
                yield BadLine(line, f"has {len(cells)} values for {len(columns)} columns")
            elif any("\udc80" <= letter <= "\udcff" for cell in cells for letter in cell):
                yield BadLine(line, "is not in UTF-8: convert the file, or export it as UTF-8")
            else:
                fields = dict(zip(columns, cells, strict=True))
                try:
                    for key in TIME_KEYS if self.time_format else ():
                        if fields.get(key):
                            fields[key] = time_in(self.time_format, fields[key].strip())
                    normalise(fields, self.message_class.name, {}, now)
                except RecordRefused as refusal:
                    yield BadLine(line, f"{refusal.reason}: {refusal.text}")
                except ValueError as error:
                    yield BadLine(line, f"bad-time: {error}")
                else:
                    yield line, {key: value for key, value in fields.items() if value}

    def _lines(self) -> Iterator[tuple[int, list[str] | BadLine]]:
        """The cells of each line that is not blank, and the number of the line."""
        self.file.seek(0)
        text = io.TextIOWrapper(
            self.file, encoding="utf-8-sig", errors="surrogateescape", newline=""
        )
        reader = csv.reader(text, delimiter=self.delimiter, strict=True)
        try:
            while True:
                line = reader.line_num + 1
                try:
                    cells = next(reader)
                except csv.Error as error:
                    yield line, BadLine(line, f"not valid CSV: {error}")
                except StopIteration:
                    return
                else:
                    if any(map(str.strip, cells)):
                        yield line, cells
        finally:
            text.detach()


@dataclass
class Imported:
    """The number of lines below the header, of rows stored and already there, and the bad lines.

    Of a dry run also what it would change.
    """

    lines: int = 0
    rows: int = 0
    duplicates: int = 0
    bad: list[BadLine] = field(default_factory=list)
    differences: list[RowChange] = field(default_factory=list)


@contextmanager
def opened_table(
    name: str,
    message_class: MessageClass,
    delimiter: str = ",",
    time_format: str | None = None,
) -> Iterator[CsvTable]:
    """The table in a file or on standard input, decompressed if necessary.

    Raises:
        BadInput: it can't be read, or its first line does not name columns of the class.
    """
    with InputFile(name) as source, tempfile.TemporaryFile() as copy:
        # The table is read twice: a pipe can't be, and a file might change in between.
        while block := source.read(BLOCK_BYTES):
            copy.write(block)
        if source.damage:
            raise BadInput(f"{source.name}: {source.damage}; nothing was imported")
        yield CsvTable(source.name, copy, message_class, delimiter, time_format)


def import_table(
    engine: Engine,
    catalogue: Catalogue,
    table: CsvTable,
    keep_going: bool = False,
    dry_run: bool = False,
) -> Imported:
    """Check all lines, then store them. If any are bad, store none, or with `keep_going` the rest.

    A dry run stores them in a transaction that is rolled back.

    Raises:
        DatabaseAway: the current transaction was rolled back.
    """
    done, refused = Imported(), list[BadLine]()
    for item in table.read():
        done.lines += 1
        if isinstance(item, BadLine):
            done.bad.append(item)
    if done.bad and not keep_going:
        return done

    def batches() -> Iterator[list[Message]]:
        """The good lines, each in a message of its own, so that a failure can name the line."""
        name = table.message_class.name
        messages = (
            record_message(name, write_json([item[1]]).encode(), JSON, table.name, item[0])
            for item in table.read()
            if not isinstance(item, BadLine)
        )
        return chunks(messages, lambda message: len(message.body), BATCH_LINES, BATCH_BYTES)

    def store(connection: Connection) -> None:
        """Store the lines in one transaction, which may be tried twice."""
        done.rows, done.duplicates, failures = 0, 0, []
        before = holding(connection) if dry_run else {}
        for batch in batches():
            decoded = decode_batch(catalogue, batch, datetime.now(UTC), Limits())
            inserted = insert_batch(connection, decoded)
            done.rows += inserted.counts.rows
            done.duplicates += inserted.counts.duplicates
            failures += inserted.failures
        refuse_broken_class(failures)
        refused[:] = [BadLine(int(one.message.headers[LINE]), one.text) for one in failures]
        if refused and not keep_going:
            done.rows = done.duplicates = 0
            raise RolledBack
        if dry_run:
            done.differences = differences(before, holding(connection))
            raise RolledBack

    def holding(connection: Connection) -> dict[tuple[str, ...], Row]:
        rows = stored_rows(connection, table.message_class)
        return {key_of(row, table.message_class.natural_key): row for row in rows}

    def differences(
        before: Mapping[tuple[str, ...], Row], after: Mapping[tuple[str, ...], Row]
    ) -> list[RowChange]:
        details = [key for key in table.message_class.keys if key != "timestamp"]
        return [
            RowChange(table.message_class, before.get(key), row)
            for key, row in after.items()
            if key not in before or key_of(before[key], details) != key_of(row, details)
        ]

    fold_all(engine)  # the first result, perhaps just loaded, decides which days are due
    with suppress(RolledBack):
        load_transaction(engine, store)
    done.bad = sorted([*done.bad, *refused], key=lambda bad: bad.line)
    return done


def read_header(
    cells: Sequence[str], message_class: MessageClass, name: str, delimiter: str
) -> list[str]:
    """The columns, spelled as in the class.

    Raises:
        BadInput: lists every problem of the header.
    """
    names = Names(message_class.keys)
    known = list(dict.fromkeys(names.values()))
    headings = [cell.strip() for cell in cells]
    columns = [names[heading] for heading in headings]
    problems = [
        f"unknown column {heading[:60]!r};"
        f" {did_you_mean(heading, known) or 'the columns are ' + ', '.join(known)}"
        for heading, column in zip(headings, columns, strict=True)
        if not column
    ]
    repeated = dict.fromkeys(column for column in columns if column and columns.count(column) > 1)
    problems += [f"column {column} is repeated" for column in repeated]
    missing = [key for key in message_class.required if key not in columns]
    if message_class is DOWNTIME and not {"hostName", "siteName"} & set(columns):
        missing.append("hostName or siteName")
    if missing:
        problems.append(f"missing: {', '.join(missing)}")
    if not problems:
        return columns
    if len(headings) == 1 and any(other in headings[0] for other in ",;\t"):
        problems.insert(0, f"only one column with the delimiter {delimiter!r}: see --delimiter")
    where = f"{name}:1: header of a {message_class.name} table"
    lines = [f"{where}: {problem}" for problem in [*problems, "nothing was imported"]]
    raise BadInput(*lines)


def time_format_argument(text: str) -> str:
    """The argparse `type` of a format of times such as `%m/%d/%Y %H:%M`.

    Only a person can name it: whether 2/3 is in February or March is nowhere in a table.
    """
    sample = datetime(2026, 11, 29, 13, 45, tzinfo=UTC)
    try:
        read = datetime.strptime(sample.strftime(text), text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not a format of strptime: {error}") from None
    if read.date() != sample.date() or (read.hour, read.minute) != (sample.hour, sample.minute):
        parts = "day, month, year, hour and minute (%m/%d/%Y %H:%M)"
        raise ArgumentTypeError(f"{text!r} must contain {parts}")
    return text


def time_in(time_format: str | None, text: str) -> str:
    """A time in this format, or in ours if it is None; without a zone it is in UTC.

    Raises:
        ValueError: the text is not such a time.
    """
    if time_format is None:
        try:
            return format_time(parse_time(text))
        except ValueError as error:
            raise ValueError(f"{error}; --time-format names another form") from None
    try:
        time = datetime.strptime(text, time_format)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a time in the format {time_format!r}") from None
    return format_time(time if time.tzinfo else time.replace(tzinfo=UTC))
