"""Opens data files of the archive; imported by executors, so without SQLAlchemy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from sam_pipeline.sql.archive.data_source import DataSource

MISSING, REFUSED, DAMAGED, AWAY = "missing", "refused", "damaged", "away"
"""Why a file cannot be read."""


class UnreadableFile(Exception):
    """A file that cannot be read, or is not what its manifest says; `kind` is why."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind, text)
        self.kind = kind
        self.text = text

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class ArchivedFile:
    """A data file as its manifest describes it."""

    name: str
    rows: int
    bytes: int


@contextmanager
def opened_parquet(
    source: DataSource, file: ArchivedFile, as_dictionaries: list[str]
) -> Iterator[Any]:
    """A `pyarrow.parquet.ParquetFile`; its size and its number of rows are as the manifest says.

    Raises:
        UnreadableFile: it cannot be read, in the block either, or it is another file.
    """
    path = source.path(file.name)
    try:
        with source.filesystem().open_input_file(path) as content:
            if (size := content.size()) != file.bytes:
                expected = f"{size} bytes, but its manifest says {file.bytes}"
                raise UnreadableFile(DAMAGED, f"{path}: {expected}")
            # Across a network, few large requests are faster than many small ones.
            parquet = pq.ParquetFile(
                content, read_dictionary=as_dictionaries, pre_buffer=not source.is_local
            )
            if (rows := parquet.metadata.num_rows) != file.rows:
                expected = f"{rows} rows, but its manifest says {file.rows}"
                raise UnreadableFile(DAMAGED, f"{path}: {expected}")
            yield parquet
    except FileNotFoundError as error:
        raise UnreadableFile(MISSING, f"{path}: no such file") from error
    except pa.ArrowException as error:
        raise UnreadableFile(DAMAGED, f"{path}: {error}") from error
    except OSError as error:
        refused = isinstance(error, PermissionError) or "ACCESS_DENIED" in str(error)
        raise UnreadableFile(REFUSED if refused else AWAY, f"{path}: {error}") from error
