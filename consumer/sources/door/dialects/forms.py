"""The parameters of a request: those of its URL, and the fields of an HTML form."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import parse_qsl

from aiohttp import web

from sam_pipeline.consumer.sources.door.answers import BAD_REQUEST, HttpProblem

FORM = "application/x-www-form-urlencoded"
LONG_BYTES = 64 * 1024
"""A form that takes several milliseconds to read."""
MAX_PARAMETERS = 1000
"""Each takes memory, many times the byte that it takes in the request."""


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
        pairs = [
            pair
            for part in parts
            for pair in parse_qsl(
                part, keep_blank_values=True, errors=errors, max_num_fields=MAX_PARAMETERS
            )
        ]
    except UnicodeDecodeError as error:
        text = f"a parameter is not UTF-8 text: {error.reason}"
        raise HttpProblem(BAD_REQUEST, text) from None
    except ValueError:
        raise HttpProblem(BAD_REQUEST, f"more than {MAX_PARAMETERS} parameters") from None
    return dict(reversed(pairs))
