"""Where the keys of the section, of a copy and of a broker's table are set, for messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Optional, Union

from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.net.target import Target
from sam_pipeline.schema.settings.section import Findings

Step = Union[str, int]
BY_PATH = ("ca_file", "crl_file", "certificate_file")


class ConfigKeys:
    """The keys of one configuration: that of the section, or of a copy."""

    def __init__(self, findings: Findings, config: PublisherConfig, *path: Step) -> None:
        """`path` leads from the section to the table of a copy."""
        self.config = config
        self._findings = findings
        self._path = path

    @property
    def bad(self) -> set[str]:
        """The fields with a bad value; a copy that has one is left out as a whole."""
        return set() if self._path else self._findings.bad

    def origin(self, key: str) -> str:
        """Where a key is set: `sam.toml:7: [publisher] copy[1] spool`, or a variable."""
        return self._located(key) if self._path else self._findings.locate(key)

    def origin_at(self, broker: object, *keys: str) -> str:
        """Where the first of the keys is set that the table of a broker sets.

        If it sets none of them: where the last one is set outside of the table.
        """
        tables = self.config.broker if self._path else self._findings.values.get("broker", ())
        for number, table in enumerate(tables, 1):
            if table and str(table.broker) == str(broker):
                for key in keys:
                    if getattr(table, key, None):
                        return self._located("broker", number, key)
        return self.origin(keys[-1])

    def origin_of_file(self, path: Optional[Path], target: Target) -> str:
        """Where the file for TLS that applies at a broker is named."""
        files = target.tls_files
        key = next((key for key in BY_PATH if path and getattr(files, key) == path), BY_PATH[-1])
        return self.origin_at(target.broker, key)

    def _located(self, *path: Step) -> str:
        steps = (*self._path, *path)
        name, *inner = steps
        lines = (self._findings.origin(str(name), *inner[:end]) for end in (None, -1))
        line = next((line for line in lines if line != "default"), self._findings.document.path)
        key = "".join(f"[{step}]" if isinstance(step, int) else f" {step}" for step in steps)
        return f"{line}: [publisher]{key}"


def all_keys(findings: Findings, config: PublisherConfig) -> Iterator[ConfigKeys]:
    """The keys of the section, then those of each copy that has no bad value."""
    yield ConfigKeys(findings, config)
    tables = enumerate(findings.values.get("copy", ()), 1)
    numbers = {table.name: number for number, table in tables if table}
    for copy in config.copies:
        yield ConfigKeys(findings, copy, "copy", numbers[copy.copy_name])
