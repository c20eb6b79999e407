"""`sam-db import csv`: topology, groups and downtimes from a table, all lines of it or none."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import BinaryIO

from sqlalchemy import Connection, Engine

from sam_pipeline.schema.chunks import chunks
from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.messages.message import CLASS, CONTENT_TYPE, JSON, MESSAGE_ID, Message
from sam_pipeline.schema.program.wording import did_you_mean
from sam_pipeline.schema.records.classes import DOWNTIME, MessageClass, Names
from sam_pipeline.schema.records.json_form import write_json
from sam_pipeline.schema.records.normalise import Limits, normalise
from sam_pipeline.schema.records.text import Record
from sam_pipeline.sql.database.transaction import load_transaction
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.input_file import InputFile
from sam_pipeline.sql.imports.records import (
    BATCH_BYTES,
    FILE,
    LINE,
    content_id,
    refuse_broken_class,
)
from sam_pipeline.sql.imports.splitter import BLOCK_BYTES
from sam_pipeline.sql.loading.batch import Failure, read_batch
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.insert import insert_batch

ONE_TRANSACTION_LINES = 100_000
"""A longer file is stored by batches: its transaction would hold up every other loader."""
BATCH_LINES = 1_000
LONGEST_VALUE = 1024 * 1024


@dataclass(frozen=True)
class BadLine:
    """A line of the table that can't be a row: its number in the file, and why."""

    line: int
    text: str


class LinesRefused(Exception):
    """The database refuses lines: raised in the transaction, which it undoes."""

    def __init__(self, bad: Sequence[BadLine]) -> None:
        super().__init__(f"{len(bad)} lines")
        self.bad = bad


@dataclass
class Table:
    """A CSV file, read as often as one likes: of the class, or refused with its first line."""

    name: str
    file: BinaryIO
    message_class: MessageClass
    delimiter: str = ","

    def __post_init__(self) -> None:
        csv.field_size_limit(LONGEST_VALUE)
        _, cells = next(self._lines(), (1, []))
        if isinstance(cells, BadLine):
            raise BadInput(f"{self.name}:1: {cells.text}; nothing was imported")
        self._header = read_header(cells, self.message_class, self.name, self.delimiter)

    def read(self) -> Iterator[tuple[int, Record] | BadLine]:
        """The lines under the header with their numbers, as records of the class."""
        now, width = datetime.now(UTC), len(self._header)
        lines = self._lines()
        next(lines, None)
        for line, cells in lines:
            if isinstance(cells, BadLine):
                yield cells
            elif len(cells) != width:
                yield BadLine(line, f"{len(cells)} values where the header names {width} columns")
            else:
                yield self._checked(line, cells, now)

    def _checked(
        self, line: int, cells: Sequence[str], now: datetime
    ) -> tuple[int, Record] | BadLine:
        fields = dict(zip(self._header, cells, strict=True))
        if any("\udc80" <= letter <= "\udcff" for cell in cells for letter in cell):
            return BadLine(line, "is not in UTF-8: convert the file, or its export's encoding")
        try:
            normalise(fields, self.message_class.name, {}, now)
        except RecordRefused as refusal:
            return BadLine(line, f"{refusal.reason}: {refusal.text}")
        return line, {key: value for key, value in fields.items() if value}

    def _lines(self) -> Iterator[tuple[int, list[str] | BadLine]]:
        """The cells of each line that isn't blank, or what is no line of a table."""
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
                    yield line, BadLine(line, f"is no CSV: {error}")
                except StopIteration:
                    return
                else:
                    if any(map(str.strip, cells)):
                        yield line, cells
        finally:
            text.detach()


@dataclass
class Imported:
    """`lines` under the header, `rows` stored (or there already), and the bad lines in order."""

    lines: int = 0
    rows: int = 0
    bad: list[BadLine] = field(default_factory=list)


@contextmanager
def opened_table(name: str, message_class: MessageClass, delimiter: str = ",") -> Iterator[Table]:
    """The table in a file or standard input, gunzipped.

    Raises:
        BadInput: it can't be read, or its first line names no columns of the class.
    """
    with InputFile(name) as source, tempfile.TemporaryFile() as copy:
        # A pipe can't be read twice, and a file might change between the look and the load.
        while block := source.read(BLOCK_BYTES):
            copy.write(block)
        if source.damage:
            raise BadInput(f"{source.name}: {source.damage}; nothing was imported")
        yield Table(source.name, copy, message_class, delimiter)


def import_table(
    engine: Engine, catalogue: Catalogue, table: Table, keep_going: bool = False
) -> Imported:
    """Look at all lines, then store them: with a bad one none, or the good ones if `keep_going`.

    Raises:
        DatabaseAway: nothing of the transaction in hand was stored.
    """
    done = Imported()
    for item in table.read():
        done.lines += 1
        if isinstance(item, BadLine):
            done.bad.append(item)
    if done.bad and not keep_going:
        return done
    fold_all(engine)  # reports begin with the first result, be it a new one
    at_once = done.lines <= ONE_TRANSACTION_LINES
    try:
        if at_once:
            _store(engine, catalogue, lambda: _messages(table), keep_going, done)
        else:
            for batch in _batches(_messages(table)):
                _store(engine, catalogue, lambda: batch, keep_going, done)  # noqa: B023
    except LinesRefused as refused:
        done.bad += refused.bad
    done.bad.sort(key=lambda bad: bad.line)
    return done


def read_header(
    cells: Sequence[str], message_class: MessageClass, name: str, delimiter: str
) -> list[str]:
    """The columns, in the spelling of the class.

    Raises:
        BadInput: with everything that is wrong with them.
    """
    names = Names(message_class.keys)
    found = [cell.strip() for cell in cells]
    columns = [names[cell] for cell in found]
    problems = [_unknown(cell, names) for cell in found if not names[cell]]
    twice = dict.fromkeys(key for key in columns if key and columns.count(key) > 1)
    problems += [f"column {key} stands there twice" for key in twice]
    missing = [key for key in message_class.required if key not in columns]
    if message_class is DOWNTIME and not {"hostName", "siteName"} & set(columns):
        missing.append("hostName or siteName")
    if missing:
        problems.append(f"missing: {', '.join(missing)}")
    if not problems:
        return columns
    if len(found) == 1 and any(other in found[0] for other in ",;\t"):
        problems.insert(0, f"only one column with the delimiter {delimiter!r}: see --delimiter")
    where = f"{name}:1: the header of a table of {message_class.name}"
    raise BadInput("\n".join(f"{where}: {each}" for each in [*problems, "nothing was imported"]))


def _unknown(cell: str, names: Names) -> str:
    columns = dict.fromkeys(names.values())
    hint = did_you_mean(cell, columns) or f"there are {', '.join(columns)}"
    return f"no column {cell[:60]!r}; {hint}"


def _messages(table: Table) -> Iterator[Message]:
    """The good lines: each a message, so that a failure tells its line."""
    for item in table.read():
        if isinstance(item, BadLine):
            continue
        line, record = item
        body = write_json([record]).encode()
        class_name = table.message_class.name
        headers = {
            CLASS: class_name,
            MESSAGE_ID: content_id(class_name, body),
            CONTENT_TYPE: JSON,
            FILE: table.name,
            LINE: str(line),
        }
        yield Message(headers, body)


def _store(
    engine: Engine,
    catalogue: Catalogue,
    messages: Callable[[], Iterable[Message]],
    keep_going: bool,
    done: Imported,
) -> None:
    """In one transaction, which may begin twice."""

    def action(connection: Connection) -> tuple[int, list[Failure]]:
        rows, failures = 0, []
        for batch in _batches(messages()):
            read = read_batch(catalogue, batch, datetime.now(UTC), Limits())
            inserted = insert_batch(connection, read)
            rows += inserted.rows
            failures += inserted.failures
        refuse_broken_class(failures)
        if failures and not keep_going:
            raise LinesRefused(_bad_lines(failures))
        return rows, failures

    rows, failures = load_transaction(engine, action)
    done.rows += rows
    done.bad += _bad_lines(failures)


def _bad_lines(failures: Iterable[Failure]) -> list[BadLine]:
    return [BadLine(int(one.message.headers[LINE]), one.text) for one in failures]


def _batches(messages: Iterable[Message]) -> Iterator[list[Message]]:
    return chunks(messages, lambda message: len(message.body), BATCH_LINES, BATCH_BYTES)
