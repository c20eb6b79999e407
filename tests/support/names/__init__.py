"""Host names that resolve to addresses chosen by a test, for real processes.

    names = Names(tmp_path / "names")
    names.lead("brokers.example.org", "127.0.0.2", "127.0.0.3")
    subprocess.run(command, env={**os.environ, **names.environment()})

The process imports the `sitecustomize` beside this file, which reads the file at every look-up.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

FILE_VARIABLE = "NAMES_OF_TEST"


class Names:
    """A name without addresses is unknown; all other names are resolved by the system."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._addresses: dict[str, tuple[str, ...]] = {}

    def lead(self, name: str, *addresses: str) -> None:
        self._addresses[name] = addresses
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(self._addresses))
        part.rename(self._path)

    def environment(self) -> Mapping[str, str]:
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        return {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            FILE_VARIABLE: str(self._path),
        }
