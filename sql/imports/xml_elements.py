"""The elements of XML files, one at a time, so that a file may be of any size.

A file holds one document or several, one after another, as joined pages do. What a file could do
harm with (a DTD, so entities of any kind) is refused before anything is expanded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from xml.etree.ElementTree import Element, ParseError, TreeBuilder
from xml.parsers.expat import errors

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from sam_pipeline.schema.program.command import IO_ERROR, NO_INPUT, NO_PERMISSION
from sam_pipeline.sql.errors import BadInput

CHUNK_BYTES = 1 << 16

# What expat says where a second document begins: with its first element, with its declaration.
_NEXT_DOCUMENT = {
    errors.codes[errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT],
    errors.codes[errors.XML_ERROR_MISPLACED_XML_PI],
}


class Located(NamedTuple):
    """An element and where it begins: `x.xml, line 17`."""

    where: str
    element: Element


def elements(path: Path, root: str) -> Iterator[Located]:
    """The children of the root of every document in the file.

    Raises:
        BadInput: no XML, cut off, of another root, with a DTD; or there is no such file, or it
            can't be read: the exit code tells.
    """
    with _opened(path) as file:
        document = _Document(path, root)
        while chunk := _read(path, file):
            while chunk:
                chunk = document.feed(chunk)
                yield from document.complete()
                if chunk:
                    document = _Document(path, root, document.last_line)
        document.close()


class _Document:
    """One document, fed with bytes that may go on into the next."""

    def __init__(self, path: Path, root: str, first_line: int = 1) -> None:
        self.last_line = first_line
        self._path = path
        self._children = _Children(path, root, first_line)
        self._parser: Any = DefusedXMLParser(target=self._children, forbid_dtd=True)
        self._children.expat = self._parser.parser
        if hasattr(self._parser.parser, "SetReparseDeferralEnabled"):
            # Newer ones may put off what they were fed: then the root's end is known too late.
            self._parser.parser.SetReparseDeferralEnabled(False)
        self._fed = 0
        self._tail = b""  # what was fed last; from the end of the root on, all of it

    def feed(self, data: bytes) -> bytes:
        """Read on; what is returned belongs to the next document."""
        self._tail = self._tail + data if self._children.closed else data
        self._fed += len(data)
        try:
            self._parser.feed(data)
        except ParseError as error:
            if not self._children.closed or error.code not in _NEXT_DOCUMENT:
                raise self._refused(error) from error
            self.last_line += error.position[0] - 1
            return self._tail[self._parser.parser.ErrorByteIndex - self._fed :]
        except (DefusedXmlException, LookupError, ValueError) as error:
            raise self._refused(error) from error
        return b""

    def complete(self) -> list[Located]:
        """The elements read since the last call."""
        found, self._children.found = self._children.found, []
        return found

    def close(self) -> None:
        try:
            self._parser.close()
        except ParseError as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> BadInput:
        if isinstance(error, DefusedXmlException):
            line = self._children.line()
            return BadInput(
                f"{self._path}, line {line}: has a document type (DTD), which could hide entities;"
                " an export of GOCDB has none"
            )
        if not isinstance(error, ParseError):
            return BadInput(f"{self._path}: {error}")
        line = self.last_line + error.position[0] - 1
        if error.code == errors.codes[errors.XML_ERROR_NO_ELEMENTS]:
            return BadInput(f"{self._path}, line {line}: the file ends here, cut off or empty")
        return BadInput(
            f"{self._path}, line {line}: is no XML: {errors.messages.get(error.code, error)}"
        )


class _Children:
    """Takes what the parser meets; gives a tree for each child of the root, and none for all."""

    expat: Any

    def __init__(self, path: Path, root: str, first_line: int) -> None:
        self.found: list[Located] = []
        self.closed = False
        self._path = path
        self._root = root
        self._first_line = first_line
        self._depth = 0
        self._tree = TreeBuilder()
        self._where = ""

    def line(self) -> int:
        return self._first_line + int(self.expat.CurrentLineNumber) - 1

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._depth == 0 and tag != self._root:
            raise BadInput(
                f"{self._path}, line {self.line()}: begins with <{tag[:40]}>, not with"
                f" <{self._root}>: is no answer of GOCDB, or one that tells an error"
            )
        if self._depth == 1:
            self._tree = TreeBuilder()
            self._where = f"{self._path}, line {self.line()}"
        self._depth += 1
        if self._depth > 1:
            self._tree.start(tag, attributes)

    def data(self, text: str) -> None:
        if self._depth > 1:
            self._tree.data(text)

    def end(self, tag: str) -> None:
        if self._depth > 1:
            self._tree.end(tag)
        self._depth -= 1
        if self._depth == 1:
            self.found.append(Located(self._where, self._tree.close()))
        self.closed = self._depth == 0

    def close(self) -> None:
        """The parser asks for a result; the elements were given already."""


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise _unreadable(path, error) from error


def _read(path: Path, file: BinaryIO) -> bytes:
    try:
        return file.read(CHUNK_BYTES)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> BadInput:
    codes = {PermissionError: NO_PERMISSION, FileNotFoundError: NO_INPUT}
    reason = (error.strerror or str(error)).lower()
    return BadInput(f"{path}: {reason}; nothing was changed", codes.get(type(error), IO_ERROR))
