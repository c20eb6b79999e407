"""Reads the elements of XML files one at a time, so that a file may have any size.

A file contains one document, or several concatenated ones, such as pages. A document type (DTD),
which could define entities, is rejected before anything is expanded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, ParseError, TreeBuilder
from xml.parsers.expat import errors

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from sam_pipeline.schema.program.wording import one_line
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.formats.whole_file import unreadable

CHUNK_BYTES = 1 << 16
MAX_QUOTED = 200

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


class Located(NamedTuple):
    """An element, and where it begins: `x.xml, line 17`."""

    where: str
    element: Element


def elements(path: Path, root: str, lists: Collection[str] = ()) -> Iterator[Located]:
    """The children of the root of every document in the file.

    Of children whose names are in `lists`, their own children instead.

    Raises:
        BadInput: the file is not XML, is truncated, has a different root, or has a DTD; or it
            can't be read (see the exit code).
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
        raise unreadable(path, error) from error
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
        says = f", which says: {one_line(self._text)}" if self._text.strip() else ""
        return BadInput(
            f"{self._where}: begins with <{self._other[:40]}>, not <{self._root}>: it is another"
            f" document, or the error of a server{says}; nothing was changed"
        )

    def _refused(self, error: Exception) -> BadInput:
        if isinstance(error, DefusedXmlException):
            line = self._expat.CurrentLineNumber
            problem = "has a document type (DTD), which could define entities; no feed needs one"
            if str(getattr(error, "name", "")).lower() == "html":
                problem = "is HTML: it is another document, or the error of a server"
        elif isinstance(error, ParseError):
            line = error.position[0]
            problem = f"not valid XML: {errors.messages.get(error.code, error)}"
            if error.code in _TRUNCATED:
                problem = "the file ends here: truncated or empty; fetch it again"
            elif self._is_other_encoding(error):
                problem = "is not in the encoding that it declares (without one, UTF-8): convert it"
        else:
            return BadInput(f"{self._path}: {error}; nothing was changed")
        where = f"{self._path}, line {self._first_line + line - 1}"
        return BadInput(f"{where}: {problem}; nothing was changed")

    def _is_other_encoding(self, error: ParseError) -> bool:
        """Whether an invalid token is a byte that the encoding does not have."""
        offset = self._expat.ErrorByteIndex - (self._fed - len(self._tail))
        bad = self._tail[offset : offset + 1]
        return error.code == _INVALID_TOKEN and not bad.isascii()
