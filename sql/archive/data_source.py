"""How data files of the archive are opened; imported by executors, so without SQLAlchemy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class DataSource:
    """How a process opens data files with pyarrow; can be pickled, for the executors of Spark."""

    root: str
    is_local: bool = True
    s3: dict[str, Any] = field(default_factory=dict, repr=False)
    """The arguments of pyarrow's S3FileSystem; credentials are among them."""

    def filesystem(self) -> Any:
        """A `pyarrow.fs.FileSystem`."""
        from pyarrow import fs  # type: ignore[import-untyped]

        return fs.LocalFileSystem() if self.is_local else fs.S3FileSystem(**self.s3)

    def path(self, name: str) -> str:
        """The path of a file in that filesystem."""
        return f"{self.root}/{name}"
