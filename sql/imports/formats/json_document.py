"""Reads a document in JSON, and says what else it is."""

from __future__ import annotations

import json
from collections import Counter
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.formats.whole_file import read_whole

LARGEST_BYTES = 64 * 1024 * 1024
"""The limit on a document, which becomes up to ten times as large in memory."""


def read_json(path: Path) -> Any:
    """The document in a file.

    Raises:
        BadInput: the file can't be read, or is not one document in JSON.
    """
    contents = read_whole(path, LARGEST_BYTES)
    try:
        return json.loads(contents, object_pairs_hook=_without_repetition)
    except UnicodeDecodeError as error:
        problem = f"is not in UTF-8 (byte {error.start + 1}): export it in UTF-8"
    except JSONDecodeError as error:
        problem = f"line {error.lineno}: not valid JSON: {error.msg.lower().removesuffix(' at')}"
        if contents.lstrip().startswith(b"<"):
            problem = "is HTML or XML, not JSON: it is another document, or the error of a server"
        elif not error.doc[error.pos :].strip() or error.msg.startswith("Unterminated string"):
            problem = f"line {error.lineno}: the file ends here: truncated; fetch it again"
    except (ValueError, RecursionError) as error:
        problem = f"not valid JSON: {error}"
    raise BadInput(f"{path}: {problem}; nothing was changed")


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        [(repeated, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the name {repeated[:80]!r} appears twice in one object")
    return document
