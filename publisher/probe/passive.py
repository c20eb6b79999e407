"""Passive check results as records: lines for Nagios, and documents for NRDP."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Callable, NamedTuple, Union

from sam_pipeline.publisher.probe.fifo import PROBLEMS, TOO_LARGE, TRUNCATED, InputLine, Lines
from sam_pipeline.publisher.probe.input import LARGE_BYTES, Change, Found, Pause, RefusedRecord
from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.records.classes import built_in
from sam_pipeline.schema.records.input_file import BLOCK_BYTES, InputFile
from sam_pipeline.schema.records.normalise import normalise
from sam_pipeline.schema.records.passive import (
    CheckResult,
    Naming,
    UnreadableResults,
    record_of_result,
    result_of_command,
    results_in_json,
    results_in_xml,
)
from sam_pipeline.schema.records.text import Record

MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
"""Of NRDP; its results are in memory at once."""


class PassiveResults(NamedTuple):
    """How check results become records; `completed` adds the keys that they lack."""

    message_class: str
    naming: Naming
    completed: Change
    fit: Change
    clock: Callable[[], datetime]

    def of_lines(self, name: str, lines: Iterable[Union[InputLine, Pause]]) -> Iterator[Found]:
        """The records of external commands of Nagios; empty lines are ignored."""
        for line in lines:
            if isinstance(line, Pause):
                yield line
            elif line.reason:
                text = f"{PROBLEMS[line.reason]}: {_text(line.body)[:80]!r}"
                yield RefusedRecord(name, line.number, line.reason, text)
            elif line.body.strip():
                try:
                    yield from self._records(result_of_command(_text(line.body)))
                except RecordRefused as refusal:
                    yield RefusedRecord(name, line.number, refusal.reason, refusal.text)

    def of_input(self, file: InputFile, is_cut: Callable[[], bool]) -> Iterator[Found]:
        """The records of a file or pipe in any of the forms, which its first character shows.

        At the end, `is_cut` returns whether there may be more that was not read.
        """
        block = file.read(BLOCK_BYTES)
        while file.paused and not block.strip():
            block += file.read(BLOCK_BYTES)
        first = block.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
        file.unread(block)
        if first in (b"<", b"{"):
            yield from self._of_document(file, is_json=first == b"{")
        else:
            yield from self.of_lines(file.name, _lines(file, is_cut))

    def _of_document(self, file: InputFile, is_json: bool) -> Iterator[Found]:
        data = b""
        while len(data) <= MAX_DOCUMENT_BYTES and (
            (block := file.read(BLOCK_BYTES)) or file.paused
        ):
            data += block
        if file.damage or len(data) > MAX_DOCUMENT_BYTES:
            reason = TRUNCATED if file.damage else TOO_LARGE
            text = file.damage or f"the document has more than {MAX_DOCUMENT_BYTES} bytes"
            yield RefusedRecord(file.name, 1, reason, f"{text}; nothing of it was sent")
            return
        try:
            results = results_in_json(_text(data)) if is_json else results_in_xml(data)
        except UnreadableResults as problem:
            reason, text = "not-json" if is_json else "not-xml", f"{problem}; nothing was sent"
            yield RefusedRecord(file.name, problem.line or 1, reason, text)
            return
        if not results:
            yield RefusedRecord(file.name, 1, "empty", "the document has no check result")
        for number, result in enumerate(results, 1):
            try:
                yield from self._records(result)
            except RecordRefused as refusal:
                text = f"check result {number}: {refusal.text}"
                yield RefusedRecord(file.name, 1, refusal.reason, text)

    def _records(self, result: CheckResult) -> Iterator[Record]:
        now = self.clock()
        record = self.completed(record_of_result(result, self.naming, now))
        known = built_in(self.message_class)
        rows = normalise(record, self.message_class, {}, now) if known else [record]
        for row in rows:
            yield self.fit(row) if sum(map(len, row.values())) > LARGE_BYTES else row


def _lines(file: InputFile, is_cut: Callable[[], bool]) -> Iterator[Union[InputLine, Pause]]:
    lines = Lines()
    while (block := file.read(BLOCK_BYTES)) or file.paused:
        yield from lines.cut(block)
        if file.paused:
            yield Pause()
    if file.damage:
        yield InputLine(lines.number + 1, file.damage.encode(), TRUNCATED)
    else:
        yield from lines.end(TRUNCATED if is_cut() else "")


def _text(body: bytes) -> str:
    """The text; bytes that are not UTF-8, and NUL bytes, are replaced by U+FFFD."""
    return body.decode("utf-8", "replace").replace("\0", "\ufffd").removeprefix("\ufeff")
