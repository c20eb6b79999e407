"""Reads MESSAGE frames with the same header names in one step.

The messages of a broker have the same headers, with other values. A pattern made of their names
finds all values and the body in half the time that it takes to cut a frame line by line. What the
pattern is not certain about is left to the reader of any frame.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sam_pipeline.schema.messages.refused import KEPT_BYTES
from sam_pipeline.schema.net.stomp_frame import CONTENT_LENGTH, Frame

_PLAIN_NAME = re.compile(r"[\w.-]+", re.ASCII)


class FrameForm:
    """The form of frames with these headers, the last one first."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        lines = [re.escape(name.encode()) + b":(.*)\n" for name in reversed(names)]
        self._match = re.compile(rb"[\r\n]*MESSAGE\n%b\n([^\0]*)\0" % b"".join(lines)).match

    @staticmethod
    def fits(names: Sequence[str]) -> bool:
        """Whether the pattern of these names would be certain about them."""
        return all(map(_PLAIN_NAME.fullmatch, names))

    def read(self, buffer: bytearray, at: int) -> tuple[Frame, int] | None:
        """The frame that begins at this offset, and where it ends.

        None unless it is complete, of this form, and the reader of any frame would agree.
        """
        match = self._match(buffer, at)
        if match is None or match.end() - at > KEPT_BYTES:
            return None
        *values, body = match.groups()
        values.reverse()
        try:
            text = b"\n".join(values).decode()
        except UnicodeDecodeError:
            return None
        if "\\" in text:
            text = text.replace("\\c", ":")  # the only escape that brokers need
        if "\\" in text or "\r" in text:
            return None
        headers = dict(zip(self._names, text.split("\n"), strict=False))
        length = headers.get(CONTENT_LENGTH)
        if length is not None and length != str(len(body)):
            return None
        return Frame("MESSAGE", headers, body), match.end()
