"""The documents in which clients of NRDP submit passive check results: XML and JSON.

<checkresults><checkresult type="service"><hostname>ce01.example.org</hostname>…
{"checkresults": [{"checkresult": {"type": "service"}, "hostname": "ce01.example.org", …}]}
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Union

from sam_pipeline.schema.records.check_result import HOST, CheckResult

_ENCODING = (
    rb"""<\?xml[^>]{0,200}?encoding\s*=\s*['"]([A-Za-z0-9._-]+)['"]"""  # compiled when needed
)

ROOT, RESULT = "checkresults", "checkresult"


class UnreadableResults(ValueError):
    """The document can't be read; `line` is where, 0 if that is unknown."""

    def __init__(self, text: str, line: int = 0) -> None:
        super().__init__(text)
        self.line = line


def results_in_xml(data: Union[str, bytes]) -> Sequence[CheckResult]:
    """The elements `checkresult`; an encoding that is declared counts for bytes only.

    Bytes are UTF-8 unless they declare another encoding; others are replaced.

    A document type is refused: with its entities, a few bytes could become gigabytes.

    Raises:
        UnreadableResults: nothing of the document is used.
    """
    from xml.parsers import expat

    if isinstance(data, bytes):
        declared = re.match(_ENCODING, data.lstrip())
        if not declared or declared[1].lower() in (b"utf-8", b"utf8", b"us-ascii"):
            data = data.decode("utf-8", "replace")
    parser = expat.ParserCreate()
    parser.buffer_text = True
    path: list[str] = []
    content: list[str] = []
    results: list[dict[str, str]] = []

    def begin(tag: str, attributes: dict[str, str]) -> None:
        if not path and tag != ROOT:
            text = f"expected the element {ROOT}, not {tag[:40]!r}"
            raise UnreadableResults(text, parser.CurrentLineNumber)
        path.append(tag)
        if path == [ROOT, RESULT]:
            results.append({"type": attributes.get("type", HOST)})

    def text(piece: str) -> None:
        if len(path) == 3:  # the text of a value, not of an element in it
            content.append(piece)

    def end(tag: str) -> None:
        if len(path) == 3:
            if path[1] == RESULT and tag != "type":
                results[-1][tag] = "".join(content)
            content.clear()
        path.pop()

    def refuse(*_: object) -> None:
        raise UnreadableResults("a document type is not accepted", parser.CurrentLineNumber)

    parser.StartElementHandler = begin
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(data.strip(), True)
    except expat.ExpatError as error:
        raise UnreadableResults(str(error), error.lineno) from None
    except (ValueError, LookupError) as error:  # such as an encoding that Python does not know
        if isinstance(error, UnreadableResults):
            raise
        raise UnreadableResults(str(error)) from None
    return results


def results_in_json(data: Union[str, bytes]) -> Sequence[CheckResult]:
    """The objects of the list `checkresults`.

    Raises:
        UnreadableResults: nothing of the document is used.
    """
    try:
        document = json.loads(data, parse_int=str, parse_float=str)
    except (ValueError, RecursionError) as error:
        raise UnreadableResults(str(error), getattr(error, "lineno", 0)) from None
    listed = document.get(ROOT) if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise UnreadableResults(f"expected an object with a list {ROOT}")
    results = []
    for number, result in enumerate(listed, 1):
        if not isinstance(result, dict):
            raise UnreadableResults(f"result {number} is not an object")
        kind = result.get(RESULT)
        kind = kind.get("type", HOST) if isinstance(kind, dict) else HOST
        texts = {name: value for name, value in result.items() if isinstance(value, str)}
        results.append({**texts, "type": str(kind)})
    return results
