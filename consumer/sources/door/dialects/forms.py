"""The parameters of a request: those of its URL, and the fields of an HTML form."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import unquote_to_bytes

from aiohttp import web

from sam_pipeline.consumer.sources.door.answers import BAD_REQUEST, HttpProblem

FORM = "application/x-www-form-urlencoded"
LONG_BYTES = 64 * 1024
"""A form that takes several milliseconds to read."""
MAX_PARAMETERS = 1000
"""Each takes memory, many times the byte that it takes in the request."""
PIECE_LENGTH = 16 * 1024
"""How many characters are percent-decoded at a time."""


def media_type(content_type: str) -> str:
    """The type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


async def parameters_in(
    request: web.BaseRequest, content: bytes, errors: str = "strict"
) -> Mapping[str, str]:
    """The parameters of a request with this body; a long form does not keep others waiting."""
    content_type = request.headers.get("Content-Type", "")
    parts = request.rel_url.raw_query_string, content_type, content, errors
    if len(content) < LONG_BYTES:
        return parameters_of(*parts)
    return await asyncio.to_thread(parameters_of, *parts)


def parameters_of(
    query: str, content_type: str, body: bytes, errors: str = "strict"
) -> Mapping[str, str]:
    """The parameters by name; of a repeated name the first counts, and the URL before the form.

    `errors` says what becomes of bytes that are not UTF-8, as in `bytes.decode`.

    Raises:
        HttpProblem: there are too many, or they are not UTF-8.
    """
    parts = [query]
    try:
        if media_type(content_type) == FORM:
            parts.append(body.decode("utf-8", errors))
        if max(part.count("&") for part in parts) >= MAX_PARAMETERS:
            raise HttpProblem(BAD_REQUEST, f"more than {MAX_PARAMETERS} parameters")
        fields = [field.partition("=") for part in parts for field in part.split("&") if field]
        return {
            _unquoted(name, errors): _unquoted(value, errors) for name, _, value in reversed(fields)
        }
    except UnicodeDecodeError as error:
        text = f"a parameter is not UTF-8 text: {error.reason}"
        raise HttpProblem(BAD_REQUEST, text) from None


def _unquoted(quoted: str, errors: str) -> str:
    """A name or a value, decoded in pieces: meanwhile each escape takes a hundred bytes."""
    quoted = quoted.replace("+", " ")
    pieces = []
    start = 0
    while start < len(quoted):
        end = start + PIECE_LENGTH
        cut_escape = quoted.rfind("%", end - 2, end)
        end = end if cut_escape < 0 else cut_escape
        pieces.append(unquote_to_bytes(quoted[start:end].encode("utf-8", "surrogateescape")))
        start = end
    return b"".join(pieces).decode("utf-8", errors)
