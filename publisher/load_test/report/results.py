"""Reads the results of an earlier run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sam_pipeline.publisher.errors import PublishUsage
from sam_pipeline.schema.errors import UnreadableInput

NEEDED = ("server", "scenario", "producers", "consumers", "size_bytes", "lag_ms", "series")


def read_results(path: Path) -> list[dict[str, Any]]:
    """The documents of a file of JSON lines.

    Raises:
        UnreadableInput: it can't be read.
        PublishUsage: these are not results of a load test.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UnreadableInput(str(path), error, "nothing was compared") from error
    documents = []
    for number, line in enumerate(lines, 1):
        try:
            document = json.loads(line)
        except ValueError:
            document = None
        if not isinstance(document, dict) or not document.keys() >= set(NEEDED):
            raise PublishUsage(f"{path}:{number}: not a result of sam-publish load-test")
        documents.append(document)
    if not documents:
        raise PublishUsage(f"{path}: no cell was measured")
    return documents
