"""Saves the progress of an import on disk, so that it can resume after an interruption.

A position is saved after its batch was committed, so it is never ahead of the database. It is only
used if the file and the database are still the same; otherwise the import starts over, which is
harmless because rows that are already stored are ignored.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sqlalchemy import Connection, Engine, text

from sam_pipeline.schema.program.replacing import replacing
from sam_pipeline.schema.records.input_file import InputFile, Position
from sam_pipeline.sql.database.engine import name_of, reading
from sam_pipeline.sql.errors import DatabaseRefused, StatementFailed

HEAD_BYTES = 64 * 1024
MAX_KEYS = 100
"""How many ignored keys are counted by name; the others are counted together, as `OTHERS`."""
OTHERS = "(others)"
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

    `rows` were stored, `duplicates` changed nothing. `refused` counts bad records, `dead_letters`
    the new dead letters by reason. `resumed` records were imported by an earlier call and are
    included in the other counts.
    """

    records: int = 0
    rows: int = 0
    duplicates: int = 0
    refused: int = 0
    resumed: int = 0
    dead_letters: dict[str, int] = field(default_factory=dict)
    ignored_keys: dict[str, int] = field(default_factory=dict)

    def add(self, other: ImportTotals) -> None:
        self.records += other.records
        self.rows += other.rows
        self.duplicates += other.duplicates
        self.refused += other.refused
        self.resumed += other.resumed
        for reason, count in other.dead_letters.items():
            self.dead_letters[reason] = self.dead_letters.get(reason, 0) + count
        for key, count in other.ignored_keys.items():
            has_own_count = key in self.ignored_keys or len(self.ignored_keys) < MAX_KEYS
            name = key if has_own_count else OTHERS
            self.ignored_keys[name] = self.ignored_keys.get(name, 0) + count


class Checkpoint:
    """The saved position of one file, class and database."""

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
        saved = {"identity": self._identity, "size": size, "position": position}
        try:
            with replacing(self.path, directory_mode=0o700) as file:
                file.write(json.dumps({**saved, "totals": asdict(totals)}).encode())
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
