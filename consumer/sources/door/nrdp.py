"""NRDP, the Nagios Remote Data Processor: passive check results become records of metricOutput.

    POST /nrdp/     token=…&cmd=submitcheck&XMLDATA=<checkresults>…   (or JSONDATA={"checkresults"…)
    POST /nrdp/CE/  the same; the services are of the flavour CE
    GET /nrdp/?…    the same, as long as it fits into a line: the client in Python does so

Answers have the form of NRDP's, in the format of the data.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, unquote_plus
from xml.sax.saxutils import escape

from aiohttp import web

from sam_pipeline.consumer.sources.door.answers import (
    BAD_REQUEST,
    OK,
    UNAUTHORIZED,
    HttpProblem,
    Reply,
)
from sam_pipeline.consumer.sources.door.exchange import Exchange, parameters_in, response_to
from sam_pipeline.schema.messages.message import MESSAGE_ID, Message, pack
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.json_form import VALUES_PER_RECORD
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.schema.records.passive import (
    SERVICE_FLAVOUR,
    Naming,
    UnreadableResults,
    record_of_result,
    results_in_json,
    results_in_xml,
)

PRODUCT, VERSION = "nrdp", "2.0.3"
"""The name and version of the server whose requests and answers these are."""
MAX_QUOTED = 5
"""Bad results whose reasons are in an answer."""

SUBMIT, COMMAND = "submitcheck", "submitcmd"
HELLO = "hello"
"""The command by which clients look for NRDP."""
NO_DATA, TOO_MUCH_DATA, BAD_XML, BAD_JSON = "NO DATA", "TOO MUCH DATA", "BAD XML", "BAD JSON"
NO_COMMAND, COMMANDS_DISABLED = "NO COMMAND", "COMMANDS DISABLED"
NO_TOKEN, BAD_TOKEN = "NO TOKEN", "BAD TOKEN"
"""The messages of NRDP; the `information` beside them says more."""

_XML_DATA = ("xml", "xmldata", "XMLDATA")
_JSON_DATA = ("json", "jsondata", "JSONDATA")
_MAX_VALUES = VALUES_PER_RECORD * Limits().max_records
"""In a request: each takes a multiple of its bytes in memory."""

_TOKEN = re.compile(rb"(?:\A|&)token=([^&]+)&")

Parameters = Mapping[str, str]


class NrdpProblem(HttpProblem):
    """A request that NRDP does not accept either; `message` is what it says."""

    def __init__(self, message: str, information: str = "") -> None:
        super().__init__(BAD_REQUEST, information or message)
        self.message = message


class NrdpRefusal(HttpProblem):
    """A problem of any kind, whose answer has the form of NRDP's.

    NRDP itself answers with status 200, which would mean here that something is stored. Its clients
    read the document, or fail at any other status; either way they keep the results.
    """

    def __init__(self, parameters: Parameters, problem: HttpProblem) -> None:
        super().__init__(problem.status, str(problem), problem.headers, problem.closes)
        self._parameters = parameters
        if isinstance(problem, NrdpProblem):
            self._message = problem.message
        elif problem.status == HTTPStatus.UNAUTHORIZED:
            self._message = BAD_TOKEN if parameters.get("token") else NO_TOKEN
        else:
            self._message = HTTPStatus(problem.status).phrase.upper()

    def reply(self) -> Reply:
        result = {"status": -1, "message": self._message, "information": str(self)}
        return _reply(self.status, self._parameters, {"result": result}, self.headers)


async def post_results(exchange: Exchange) -> web.StreamResponse:
    """Answers once the results are stored, in the form of NRDP."""
    request = exchange.request
    parameters: Parameters = {}
    try:
        exchange.intake.require_room()
        content = await exchange.body.form(partial(_recognise, exchange))
        # All of it in UTF-8, but for the data, which may declare another encoding.
        parameters = {
            _replaced(name): value if name in (*_XML_DATA, *_JSON_DATA) else _replaced(value)
            for name, value in (
                await parameters_in(request, content, errors="surrogateescape")
            ).items()
        }
        if parameters.get("cmd", "").lower() == HELLO:
            response = {"status": 0, "message": "OK", "product": PRODUCT, "version": VERSION}
            return response_to(_reply(OK, parameters, {"response": response}))
        identity = exchange.sender(parameters.get("token", ""))
        flavour = unquote(exchange.rest.strip("/"))
        messages = await asyncio.to_thread(submitted, parameters, flavour, datetime.now(UTC))
        waiting = exchange.deliver(messages, identity)
        outcomes = await asyncio.gather(*waiting)
    except HttpProblem as problem:
        raise NrdpRefusal(parameters, problem) from None
    output = f"{sum(message.record_count or 0 for message in messages)} checks processed"
    if letters := [letter for outcome in outcomes for letter in outcome.letters]:
        reasons = "; ".join(f"{letter.reason}: {letter.text}" for letter in letters[:MAX_QUOTED])
        output += f"; dead letters: {reasons}"
    result = {"status": 0, "message": "OK", "meta": {"output": output}}
    return response_to(_reply(OK, parameters, {"result": result}))


def _recognise(exchange: Exchange, form: bytes) -> bool:
    """Whether the head of a request, or the part of its form that has arrived, names the sender.

    Raises:
        HttpProblem: the token is wrong.
    """
    request = exchange.request
    found = _TOKEN.search(request.rel_url.raw_query_string.encode() + b"&" + form)
    if form and not found:
        return False
    token = unquote_plus(found[1].decode("ascii", "replace")) if found else ""
    try:
        exchange.recognised(token)
    except HttpProblem as problem:
        if problem.status != UNAUTHORIZED or token or "Authorization" in request.headers:
            raise
        return False
    return True


def submitted(parameters: Parameters, flavour: str, now: datetime) -> list[Message]:
    """The results of a request, as messages; `flavour` is that of the path, or "".

    The messages have no id, so that the same results, with their times, are a redelivery.

    Raises:
        NrdpProblem: the request submits nothing, or what it submits can't be read.
    """
    command = parameters.get("cmd", "").lower()
    if command != SUBMIT:
        raise NrdpProblem(COMMANDS_DISABLED if command == COMMAND else NO_COMMAND)
    is_json, data = _data_of(parameters)
    if not data:
        raise NrdpProblem(NO_DATA)
    content = data.encode("utf-8", "surrogateescape")  # XML may declare its encoding
    if max(data.count("<"), data.count(",")) > _MAX_VALUES:
        raise NrdpProblem(TOO_MUCH_DATA, f"more than {_MAX_VALUES} values in one request")
    try:
        if is_json:
            results = results_in_json(content.decode("utf-8", "replace"))
        else:
            results = results_in_xml(content)
    except UnreadableResults as problem:
        raise NrdpProblem(BAD_JSON if is_json else BAD_XML, str(problem)) from None
    naming = Naming(flavour or SERVICE_FLAVOUR)
    records = [record_of_result(result, naming, now) for result in results]
    messages = []
    for message in pack(records, METRIC_OUTPUT.name):
        headers = {name: value for name, value in message.headers.items() if name != MESSAGE_ID}
        messages.append(Message(headers, message.body))
    return messages


def _replaced(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _data_of(parameters: Parameters) -> tuple[bool, str]:
    """Whether the data are JSON, and the data; "" if there are none."""
    for is_json, names in ((False, _XML_DATA), (True, _JSON_DATA)):
        if data := next(filter(None, map(parameters.get, names)), None):
            return is_json, data
    return False, ""


def _reply(
    status: int, parameters: Parameters, document: Any, headers: Mapping[str, str] | None = None
) -> Reply:
    output_type = parameters.get("output_type", "")
    is_json = output_type.upper().endswith("JSON") if output_type else _data_of(parameters)[0]
    if is_json:
        return Reply(status, json.dumps(document).encode(), "application/json", headers or {})
    text = f'<?xml version="1.0" encoding="utf-8"?>\n{_xml(document, "")}'
    return Reply(status, text.encode(), "text/xml", headers or {})


def _xml(document: Mapping[str, Any], indent: str) -> str:
    lines = []
    for name, value in document.items():
        if isinstance(value, dict):
            content = f"\n{_xml(value, indent + '  ')}{indent}"
        else:
            content = escape(str(value))
        lines.append(f"{indent}<{name}>{content}</{name}>\n")
    return "".join(lines)
