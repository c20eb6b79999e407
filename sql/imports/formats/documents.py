"""Reads the documents that feeds consist of: XML, JSON, YAML and tables in CSV.

The elements of XML are read one at a time, so a file may have any size; the others are read at
once. All raise BadInput with the file, the line and the problem; nothing was changed then.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from xml.etree.ElementTree import Element, ParseError, TreeBuilder
from xml.parsers.expat import errors

import yaml
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from sam_pipeline.schema.program.command import IO_ERROR, NO_INPUT, NO_PERMISSION
from sam_pipeline.schema.program.wording import one_line
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_rows import LeftOut

MIB = 1024 * 1024
MAX_JSON_BYTES, MAX_YAML_BYTES, MAX_CSV_BYTES = 64 * MIB, 4 * MIB, 16 * MIB
"""In memory, JSON takes up to ten times its size, and YAML up to fifty times."""

CHUNK_BYTES = 1 << 16
MAX_QUOTED = 200
REPEATED = "a repeated key"
"""The only key of a mapping in YAML in which a key appears twice; its value is that key."""

_EXIT_CODES = {PermissionError: NO_PERMISSION, FileNotFoundError: NO_INPUT}

# Errors of Expat at the beginning of a second document: at its first element or XML declaration.
_NEXT_DOCUMENT = {
    errors.codes[errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT],
    errors.codes[errors.XML_ERROR_MISPLACED_XML_PI],
}
_INVALID_TOKEN = errors.codes[errors.XML_ERROR_INVALID_TOKEN]
_TRUNCATED = {
    errors.codes[errors.XML_ERROR_NO_ELEMENTS],
    errors.codes[errors.XML_ERROR_UNCLOSED_TOKEN],
    errors.codes[errors.XML_ERROR_UNCLOSED_CDATA_SECTION],
    errors.codes[errors.XML_ERROR_PARTIAL_CHAR],
}


def read_json(path: Path) -> Any:
    """The document in a file of JSON in UTF-8, in which no object has a name twice."""
    contents = _read_whole(path, MAX_JSON_BYTES)
    try:
        return json.loads(contents, object_pairs_hook=_without_repetition)
    except UnicodeDecodeError as error:
        problem = f"is not in UTF-8 (byte {error.start + 1}): export it in UTF-8"
    except json.JSONDecodeError as error:
        problem = f"line {error.lineno}: not valid JSON: {error.msg.lower().removesuffix(' at')}"
        if contents.lstrip().startswith(b"<"):
            problem = "is HTML or XML, not JSON: it is another document, or an error page"
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


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader without guesses at types: an id `017` keeps its zero, and `no` is a name."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        if len(mapping) == len(node.value):
            return mapping
        [(repeated, _)] = Counter(str(key.value) for key, _ in node.value).most_common(1)
        return {REPEATED: repeated}


def read_yaml(path: Path) -> tuple[Any, Sequence[int]]:
    """The document in a file of YAML, and the lines where its entries begin if it is a list.

    All values are texts, lists or mappings of texts. Tags are refused, and so are aliases, with
    which a small document can become a large one.
    """
    contents = _read_whole(path, MAX_YAML_BYTES)
    try:
        for event in yaml.parse(contents, Loader=_Loader):
            if isinstance(event, yaml.AliasEvent):
                problem = "has an alias (*): write out what it stands for"
                raise yaml.constructor.ConstructorError(None, None, problem, event.start_mark)
        loader = _Loader(contents)
        try:
            node = loader.get_single_node()
            document = loader.construct_document(node) if node else None
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}, line {mark.line + 1}" if mark else f"{path}"
        problem = f"not valid YAML: {error.problem}"
        if isinstance(error, yaml.constructor.ConstructorError):
            problem = str(error.problem)
        raise BadInput(f"{where}: {problem}; nothing was changed") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise BadInput(f"{path}: not valid YAML in UTF-8: {reason}; nothing was changed") from error
    entries = node.value if isinstance(node, yaml.SequenceNode) else []
    return document, [entry.start_mark.line + 1 for entry in entries]


def table_lines(
    paths: Iterable[Path], required: Collection[str], left_out: list[LeftOut]
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The lines of tables in CSV and UTF-8, by the names of their columns, with their location.

    Blank lines are skipped; lines with too few or too many values are added to `left_out`.
    """
    for path in paths:
        try:
            text = _read_whole(path, MAX_CSV_BYTES).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            problem = f"is not in UTF-8 (byte {error.start + 1}): export it in UTF-8"
            raise BadInput(f"{path}: {problem}; nothing was changed") from None
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        try:
            columns = [name.strip() for name in next(reader)]
            if any(name not in columns for name in required):
                problem = f"must name the columns {', '.join(required)}"
                raise BadInput(f"{path}, line 1: {problem}; nothing was changed")
            for cells in reader:
                where = f"{path}, line {reader.line_num}"
                if len(cells) == len(columns):
                    if any(map(str.strip, cells)):
                        yield where, dict(zip(columns, map(str.strip, cells), strict=True))
                elif cells:
                    problem = f"has {len(cells)} values for {len(columns)} columns"
                    left_out.append(LeftOut(where, problem))
        except csv.Error as error:
            where = f"{path}, line {reader.line_num}"
            raise BadInput(f"{where}: not valid CSV: {error}; nothing was changed") from error


def _read_whole(path: Path, max_bytes: int) -> bytes:
    """The contents of a file that is neither empty nor larger than this."""
    try:
        with path.open("rb") as file:
            contents = file.read(max_bytes + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(contents) > max_bytes:
        limit = f"more than {max_bytes >> 20} MiB, and no export is as large"
        raise BadInput(f"{path}: has {limit}: check what it is; nothing was changed")
    if not contents.strip():
        raise BadInput(f"{path}: the file is empty: fetch it again; nothing was changed")
    return contents


def _unreadable(path: Path, error: OSError) -> BadInput:
    reason = (error.strerror or str(error)).lower()
    code = _EXIT_CODES.get(type(error), IO_ERROR)
    return BadInput(f"{path}: {reason}; nothing was changed", exit_code=code)


class Located(NamedTuple):
    """An element, and where it begins: `x.xml, line 17`."""

    where: str
    element: Element


def elements(path: Path, root: str, lists: Collection[str] = ()) -> Iterator[Located]:
    """The children of the root of every document in the file.

    Of children whose names are in `lists`, their own children instead. A file contains one
    document, or several concatenated ones, such as pages. A document type (DTD), which could define
    entities, is refused before anything is expanded.
    """
    document = _Document(path, root, lists)
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                while chunk:
                    chunk = document.feed(chunk)
                    yield from document.complete
                    document.complete.clear()
                    if chunk:
                        document = _Document(path, root, lists, document.next_line)
    except OSError as error:
        raise _unreadable(path, error) from error
    document.finish()


class _Document:
    """One document, fed with bytes that may include the beginning of the next one.

    It is the target of its own parser, and builds a tree for each child of the root, or of a list
    below the root.
    """

    def __init__(self, path: Path, root: str, lists: Collection[str], first_line: int = 1) -> None:
        self.next_line = first_line
        self.complete: list[Located] = []
        self._path = path
        self._root = root
        self._lists = lists
        self._first_line = first_line
        self._parser: Any = DefusedXMLParser(target=self, forbid_dtd=True)
        self._expat: Any = self._parser.parser
        if hasattr(self._expat, "SetReparseDeferralEnabled"):
            # Newer versions may defer parsing, and so report the end of the root too late.
            self._expat.SetReparseDeferralEnabled(False)
        self._fed = 0
        self._tail = b""  # the last chunk; after the end of the root, all chunks since
        self._depth = 0
        self._tree_depth = 1  # 2 inside a list
        self._is_closed = False
        self._tree = TreeBuilder()
        self._where = ""
        self._other = ""  # the root of another document, perhaps <error>, and the text in it
        self._text = ""

    def feed(self, data: bytes) -> bytes:
        """Add the elements that end in `data` to `complete`; returns bytes of the next document."""
        self._tail = self._tail + data if self._is_closed else data
        self._fed += len(data)
        try:
            self._parser.feed(data)
        except ParseError as error:
            if not self._is_closed or error.code not in _NEXT_DOCUMENT:
                raise self._refused(error) from error
            self.next_line = self._first_line + error.position[0] - 1
            return self._tail[self._expat.ErrorByteIndex - self._fed :]
        except (DefusedXmlException, LookupError, ValueError) as error:
            raise self._refused(error) from error
        return b""

    def finish(self) -> None:
        """End the document; raises BadInput if it is incomplete."""
        try:
            self._parser.close()
        except ParseError as error:
            raise self._refused(error) from error

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        where = f"{self._path}, line {self._first_line + self._expat.CurrentLineNumber - 1}"
        if self._other:
            raise self._another_document()
        if self._depth == 0 and tag != self._root:
            self._where, self._other = where, tag
        if self._depth == 1:
            self._tree_depth = 2 if tag in self._lists else 1
        if self._depth == self._tree_depth:
            self._tree, self._where = TreeBuilder(), where
        if self._depth >= self._tree_depth:
            self._tree.start(tag, attributes)
        self._depth += 1

    def data(self, text: str) -> None:
        if self._other:
            self._text = (self._text + text)[:MAX_QUOTED]
        elif self._depth > self._tree_depth:
            self._tree.data(text)

    def end(self, tag: str) -> None:
        if self._other:
            raise self._another_document()
        self._depth -= 1
        if self._depth >= self._tree_depth:
            self._tree.end(tag)
        if self._depth == self._tree_depth:
            self.complete.append(Located(self._where, self._tree.close()))
        self._is_closed = self._depth == 0

    def _another_document(self) -> BadInput:
        text = f": {one_line(self._text)}" if self._text.strip() else ""
        return BadInput(
            f"{self._where}: begins with <{self._other[:40]}>, not <{self._root}>: it is another"
            f" document, or an error of the server{text}; nothing was changed"
        )

    def _refused(self, error: Exception) -> BadInput:
        if isinstance(error, DefusedXmlException):
            line = self._expat.CurrentLineNumber
            problem = "has a document type (DTD), which could define entities; no feed needs one"
            if str(getattr(error, "name", "")).lower() == "html":
                problem = "is HTML: it is another document, or an error page"
        elif isinstance(error, ParseError):
            offset = self._expat.ErrorByteIndex - (self._fed - len(self._tail))
            line, bad = error.position[0], self._tail[offset : offset + 1]
            problem = f"not valid XML: {errors.messages.get(error.code, error)}"
            if error.code in _TRUNCATED:
                problem = "the file ends here: truncated or empty; fetch it again"
            elif error.code == _INVALID_TOKEN and not bad.isascii():
                problem = "is not in the encoding that it declares (without one, UTF-8): convert it"
        else:
            return BadInput(f"{self._path}: {error}; nothing was changed")
        where = f"{self._path}, line {self._first_line + line - 1}"
        return BadInput(f"{where}: {problem}; nothing was changed")


def text_of(element: Element, name: str) -> str:
    """The text of a child of an element; "" without one."""
    return (element.findtext(name) or "").strip()
