"""How far the import of a file came, on disk: a killed one goes on there.

A place is written after its batch was committed, so it is never ahead of the database. It is
believed only if file and database are still those it was written of; else the import starts at
the front, which stores the same rows a second time and so changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, text

from sam_pipeline.schema.program.replacing import replacing
from sam_pipeline.sql.database.engine import name_of, reading
from sam_pipeline.sql.errors import DatabaseRefused, StatementFailed
from sam_pipeline.sql.imports.input_file import InputFile
from sam_pipeline.sql.imports.splitter import Place

HEAD_BYTES = 64 * 1024
MOST_KEYS = 100
"""Of the ignored keys so many are told by name, the rest as `OTHERS`."""
OTHERS = "(others)"
AT_THE_FRONT = "stopped, this import would start again at the front"

# A server, its history (restored to an earlier moment it begins another one), the database, the
# view: what was dropped and made again has other numbers.
_POSTGRESQL = text("""
    SELECT concat_ws(
        '-', s.system_identifier, c.timeline_id, d.oid, CAST(to_regclass(:view) AS oid)
    )
    FROM pg_control_system() AS s, pg_control_checkpoint() AS c, pg_database AS d
    WHERE d.datname = current_database()
""")

logger = logging.getLogger(__name__)


@dataclass
class Tally:
    """What became of the records of a file, or of several.

    `rows` were stored, or were there already; `refused` could not be, of which `dead_letters` (by
    reason) are new; `resumed` were done by an earlier call and count in the others.
    """

    records: int = 0
    rows: int = 0
    refused: int = 0
    resumed: int = 0
    dead_letters: dict[str, int] = field(default_factory=dict)
    ignored_keys: dict[str, int] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        self.records += other.records
        self.rows += other.rows
        self.refused += other.refused
        self.resumed += other.resumed
        for reason, count in other.dead_letters.items():
            self.dead_letters[reason] = self.dead_letters.get(reason, 0) + count
        for key, count in other.ignored_keys.items():
            known = key in self.ignored_keys or len(self.ignored_keys) < MOST_KEYS
            name = key if known else OTHERS
            self.ignored_keys[name] = self.ignored_keys.get(name, 0) + count


class Places:
    """The state file of one file, class and database."""

    def __init__(
        self, directory: Path, engine: Engine, view: str, file: InputFile, path: Path
    ) -> None:
        self.file = path
        self._key = {"file": str(path), "class": view.lower(), "database": name_of(engine)}
        digest = hashlib.sha256(json.dumps(self._key).encode()).hexdigest()[:16]
        self.path = directory / f"import-{digest}.json"
        self._identity = {**self._key, **_of_file(file, path), **_of_database(engine, view)}
        self._usable = True

    def left(self, connection: Connection) -> tuple[Place, Tally]:
        """Where an earlier call was stopped, and what it had done; the front if there was none."""
        try:
            found = json.loads(self.path.read_text())
            believed = found["identity"] == self._identity and found["size"] <= size_of(connection)
            place, tally = Place(*found["place"]), Tally(**found["tally"])
        except FileNotFoundError:
            return Place(), Tally()
        except (OSError, ValueError, LookupError, TypeError) as error:
            logger.warning("%s can't be read, the file is imported whole: %s", self.path, error)
            return Place(), Tally()
        if not believed:
            logger.info("file or database changed since: %s is imported whole", self.file)
            return Place(), Tally()
        tally.resumed = place.record
        return place, tally

    def keep(self, place: Place, tally: Tally, size: int) -> None:
        """After the commit of all that stands before `place`; `size` is the database's."""
        if not self._usable:
            return
        document = {
            "identity": self._identity,
            "size": size,
            "place": place,
            "tally": asdict(tally),
        }
        try:
            with replacing(self.path, directory_mode=0o700) as file:
                file.write(json.dumps(document).encode())
        except OSError as error:
            self._usable = False
            logger.warning("%s: %s", AT_THE_FRONT, error)
            self.forget()  # an older place is true as well, but may be long ago

    def forget(self) -> None:
        """The next import of the file begins at its front."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


def size_of(connection: Connection) -> int:
    """What only grows while rows are added: an SQLite file that was put back to an earlier state
    is smaller. PostgreSQL begins another history then; there it is always 0."""
    if connection.dialect.name == "postgresql":
        return 0
    return int(connection.exec_driver_sql("PRAGMA page_count").scalar_one())


def _of_file(file: InputFile, path: Path) -> dict[str, Any]:
    facts = file.facts
    assert facts is not None
    with path.open("rb") as beginning:
        head = hashlib.sha256(beginning.read(HEAD_BYTES)).hexdigest()
    return {"bytes": facts.st_size, "mtime_ns": facts.st_mtime_ns, "head": head}


def _of_database(engine: Engine, view: str) -> dict[str, str]:
    if engine.dialect.name == "sqlite":
        found = os.stat(engine.get_execution_options()["sam_file"])
        return {"incarnation": f"{found.st_dev}-{found.st_ino}"}
    try:
        with reading(engine) as connection:
            quoted = connection.dialect.identifier_preparer.quote(view)
            return {"incarnation": str(connection.scalar(_POSTGRESQL, {"view": quoted}))}
    except (StatementFailed, DatabaseRefused) as error:
        logger.warning("%s: %s", AT_THE_FRONT, error)
        return {"incarnation": os.urandom(16).hex()}  # of no other call
