"""`sam-db import records`: loads records from files in the same way as those from a broker."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, text

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.identity import IDENTITY, operator_identity
from sam_pipeline.schema.messages.counts import Counts, listed
from sam_pipeline.schema.messages.message import (
    CLASS,
    CONTENT_TYPE,
    JSON,
    MESSAGE_ID,
    TEXT,
    Message,
    chunks,
)
from sam_pipeline.schema.program.command import USAGE
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.program.replacing import replacing
from sam_pipeline.schema.program.wording import did_you_mean_or_list, grouped, plural
from sam_pipeline.schema.records.classes import built_in
from sam_pipeline.schema.records.input_file import InputFile, Position, Splitter
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.database.engine import name_of, reading
from sam_pipeline.sql.database.operations import login_name
from sam_pipeline.sql.errors import BadInput, DatabaseRefused, StatementFailed
from sam_pipeline.sql.loading.batch import FILE, LINE
from sam_pipeline.sql.loading.catalogue import Catalogue, ClassView
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.load import Audit, Loader, Loading, decode_batch, load_all

BATCH_RECORDS = 1_000
BATCH_BYTES = 4 * 1024 * 1024
FOLD_EVERY = 50
"""Number of batches after which current_status and the due days are updated."""

CONSUMER = "sam-db import"
"""The consumer named in `load_audit`; the broker is the file."""

FIRST_DAY = datetime(2000, 1, 1, tzinfo=UTC)
"""No probe ran before this day: an earlier time comes from a clock that was never set."""

MAX_PROBLEMS = 1_000
"""How many bad records a dry run lists; all of them are counted."""

HEAD_BYTES = 64 * 1024
NOT_RESUMABLE = "if interrupted, this import would start from the beginning"

# Identifies the server, its timeline (a restore to an earlier moment starts a new one), the
# database and the view, which get new ids if they are dropped and created again.
_POSTGRESQL = text("""
    SELECT concat_ws(
        '-', s.system_identifier, c.timeline_id, d.oid, CAST(to_regclass(:view) AS oid)
    )
    FROM pg_control_system() AS s, pg_control_checkpoint() AS c, pg_database AS d
    WHERE d.datname = current_database()
""")

logger = logging.getLogger(__name__)


@dataclass
class ImportTotals:
    """The outcome of the import of one or more files.

    `refused` counts bad records. `resumed` records were imported by an earlier call and are
    included in the other counts.
    """

    records: int = 0
    refused: int = 0
    resumed: int = 0
    counts: Counts = field(default_factory=Counts)

    def add(self, other: ImportTotals) -> None:
        self.records += other.records
        self.refused += other.refused
        self.resumed += other.resumed
        self.counts += other.counts.printable_for(self.counts)

    def document(self) -> dict[str, Any]:
        """The outcome for JSON."""
        counts = self.counts.document()
        shown = ("rows", "duplicates", "dead_letters", "ignored_keys")
        return {
            "records": self.records,
            "refused": self.refused,
            "resumed": self.resumed,
            **{name: counts[name] for name in shown},
        }

    def summary(self, seconds: float, dry_run: bool) -> str:
        new = "new, unless they are stored already" if dry_run else "new"
        counts, letters = self.counts, self.counts.dead_letters
        rows = f"{counts.rows} {new}, {counts.duplicates} unchanged, {self.refused} left out"
        parts = [f"{plural(self.records, 'record')}: {rows}"]
        if not dry_run:
            parts.append(f"{plural(letters.total(), 'new dead letter')}{listed(letters)}")
        if counts.ignored_keys:
            parts.append(f"keys without a column{listed(counts.ignored_keys)}")
        if self.resumed:
            parts.append(f"{grouped(self.resumed)} of the records in an earlier call")
        rate = (self.records - self.resumed) / max(seconds, 1e-6)
        return f"{', '.join(parts)}; {seconds:.1f} s, {grouped(int(rate))} records a second"


def limits_of_history(now: datetime, age_limit: timedelta | None = None) -> Limits:
    """Limits that accept times since `FIRST_DAY`; future ones are refused as usual."""
    return Limits(past=age_limit or now - FIRST_DAY)


@dataclass
class Import:
    """Imports files one after another into a view; `totals` and `problems` cover all of them."""

    engine: Engine
    catalogue: Catalogue
    class_name: str
    limits: Limits
    progress: Progress
    state: Path
    restart: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        self.totals = ImportTotals()
        self.problems: list[str] = []
        self.damaged_files = 0
        self._checkpoints: list[Checkpoint] = []
        self._view = usable_view(self.catalogue, self.class_name)

    def run(self, name: str) -> None:
        """Import all records of a file.

        Raises:
            DatabaseAway, BadInput, KeyboardInterrupt: the next call resumes after the last commit.
        """
        with InputFile(name) as file:
            checkpoint, position, totals = None, Position(), ImportTotals()
            if file.stat_result is not None and not self.dry_run:  # a pipe can't be resumed
                checkpoint = Checkpoint(self.state, self.engine, self._view.name, file)
                if self.restart:
                    checkpoint.forget()
                with reading(self.engine) as connection:
                    position, totals = checkpoint.load(connection)
                if position.record:
                    logger.info("%s: resuming after %d records", checkpoint.file, position.record)
            records = Splitter(file, self.class_name, self._view.columns, position)
            self.progress.name = file.name
            batches = chunks(records, lambda record: len(record.raw), BATCH_RECORDS, BATCH_BYTES)
            try:
                for number, batch in enumerate(batches, 1):
                    content_type = JSON if records.is_json else TEXT
                    messages = [
                        record_message(self.class_name, raw, content_type, file.name, line)
                        for raw, line, _ in batch
                    ]
                    if self.dry_run:
                        self._check(messages, totals)
                    else:
                        size = self._load(messages, file.name, totals)
                        if checkpoint:
                            checkpoint.save(batch[-1].end, totals, size)
                    done = self.totals.records + totals.records
                    self.progress.show(done, file.share, self.totals.resumed + totals.resumed)
                    if number % FOLD_EVERY == 0 and not self.dry_run:
                        fold_all(self.engine)
            finally:
                self.progress.end()
                self.totals.add(totals)
        if not self.dry_run:
            fold_all(self.engine)
        if records.damage:
            self.damaged_files += 1
            outcome = "checked" if self.dry_run else "imported; get the file again and repeat"
            complete = f"the {records.position.record} complete records before that were {outcome}"
            self.problems.append(f"{file.name}: {records.damage}; {complete}")
            logger.error("%s", self.problems[-1])
        if checkpoint:
            self._checkpoints.append(checkpoint)

    def end(self) -> None:
        """Delete the checkpoints after all files are done; a repeated call imports all of them."""
        for checkpoint in self._checkpoints:
            checkpoint.forget()

    def _load(self, messages: Sequence[Message], file: str, totals: ImportTotals) -> int:
        """Store a batch and commit; returns `size_of` the database afterwards."""
        loader = Loader(self.engine, self.catalogue, self.limits, parks=False)
        audit = Audit(CONSUMER, socket.gethostname(), os.getpid(), [file] * len(messages))
        counts = load_all(Loading(loader, messages, datetime.now(UTC), audit))
        refused = counts.dead_letters.total()
        refused += counts.repeated_dead_letters + counts.summarised_dead_letters
        totals.add(ImportTotals(len(messages), refused, counts=counts))
        with reading(self.engine) as connection:
            return size_of(connection)

    def _check(self, messages: Sequence[Message], totals: ImportTotals) -> None:
        """Count a batch and list its bad records, except those only the database would reject."""
        batch = decode_batch(self.catalogue, messages, datetime.now(UTC), self.limits)
        views = batch.by_view.values()
        failures = [*batch.failures, *(failure for view in views for failure in view.failures)]
        rows = sum(len(view.rows) for view in views)
        counts = batch.counts
        counts.rows_by_class[self._view.name] += rows
        totals.add(ImportTotals(len(messages), len(failures), counts=counts))
        for failure in failures[: MAX_PROBLEMS - len(self.problems)]:
            headers = failure.message.headers
            where = f"{headers[FILE]}:{headers[LINE]}"
            self.problems.append(f"{where}: {failure.reason}: {failure.text}")


def usable_view(catalogue: Catalogue, class_name: str) -> ClassView:
    """The view of a class.

    Raises:
        BadInput: the database has no such class.
        ConfigError: it can't be used, so that every record would fail.
    """
    view = catalogue.find(class_name)
    if view is None and built_in(class_name):
        raise ConfigError([f"{class_name}: the view or its trigger is missing (sam-db check)"])
    if view is None:
        hint = did_you_mean_or_list(class_name, catalogue.names())
        raise BadInput(f"--class {class_name[:80]}: no such class; {hint}", exit_code=USAGE)
    if view.problem:
        raise ConfigError([f"{class_name}: {view.problem}"])
    return view


def record_message(
    class_name: str, body: bytes, content_type: str, file: str, line: int
) -> Message:
    """The message of one record from a file, sent by whoever runs this process."""
    # The same in each import of the record.
    digest = hashlib.sha256(class_name.lower().encode("utf-8", "replace") + b"\0" + body.strip())
    headers = {
        CLASS: class_name,
        MESSAGE_ID: f"import-{digest.hexdigest()[:32]}",
        IDENTITY: operator_identity(login_name()),
        CONTENT_TYPE: content_type,
        FILE: file,
        LINE: str(line),
    }
    return Message(headers, body)


class Checkpoint:
    """The saved position of one file, class and database, where an interrupted import resumes.

    A position is saved after its batch was committed, so it is never ahead of the database. It is
    only used if the file and the database are still the same; otherwise the import starts over,
    which is harmless because rows that are already stored are ignored.
    """

    def __init__(self, directory: Path, engine: Engine, view: str, file: InputFile) -> None:
        self.file = Path(file.name).resolve()
        key = {"file": str(self.file), "class": view.lower(), "database": name_of(engine)}
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
        self.path = directory / f"import-{digest}.json"
        result = file.stat_result
        assert result is not None, "a pipe can't be resumed"
        with self.file.open("rb") as beginning:
            head = hashlib.sha256(beginning.read(HEAD_BYTES)).hexdigest()
        # Changes if the database, or the view in it, is created again.
        if engine.dialect.name == "sqlite":
            database = os.stat(engine.get_execution_options()["sam_file"])
            incarnation = f"{database.st_dev}-{database.st_ino}"
        else:
            try:
                with reading(engine) as connection:
                    quoted = connection.dialect.identifier_preparer.quote(view)
                    incarnation = str(connection.scalar(_POSTGRESQL, {"view": quoted}))
            except (StatementFailed, DatabaseRefused) as error:
                logger.warning("%s: %s", NOT_RESUMABLE, error)
                incarnation = os.urandom(16).hex()  # never matches
        self._identity = {
            **key,
            "bytes": result.st_size,
            "mtime_ns": result.st_mtime_ns,
            "head": head,
            "incarnation": incarnation,
        }
        self._usable = True

    def load(self, connection: Connection) -> tuple[Position, ImportTotals]:
        """The position and totals of an interrupted call, or those of the beginning of the file."""
        try:
            saved = json.loads(self.path.read_text())
            position, totals = Position(*saved["position"]), ImportTotals(**saved["totals"])
            totals.counts = Counts.from_document(saved["totals"]["counts"])
            is_valid = saved["identity"] == self._identity and saved["size"] <= size_of(connection)
        except FileNotFoundError:
            return Position(), ImportTotals()
        except (OSError, ValueError, LookupError, TypeError) as error:
            logger.warning("can't read %s: starting from the beginning: %s", self.path, error)
            return Position(), ImportTotals()
        if not is_valid:
            logger.info("file or database has changed: importing all of %s", self.file)
            return Position(), ImportTotals()
        totals.resumed = position.record
        return position, totals

    def save(self, position: Position, totals: ImportTotals, size: int) -> None:
        """Save the progress once all rows before `position` are committed; `size` is `size_of`."""
        if not self._usable:
            return
        document = {**vars(totals), "counts": totals.counts.document()}
        saved = {"identity": self._identity, "size": size, "position": position, "totals": document}
        try:
            with replacing(self.path, directory_mode=0o700) as file:
                file.write(json.dumps(saved).encode())
        except OSError as error:
            self._usable = False
            logger.warning("%s: %s", NOT_RESUMABLE, error)
            self.forget()  # the last saved position is valid, but may be far behind

    def forget(self) -> None:
        """Make the next import of the file start from the beginning."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def size_of(connection: Connection) -> int:
    """The number of pages of an SQLite file, which decreases if an older copy is restored.

    Always 0 on PostgreSQL, where a restore starts a new timeline.
    """
    if connection.dialect.name == "postgresql":
        return 0
    return int(connection.exec_driver_sql("PRAGMA page_count").scalar_one())
