"""NRDP, the Nagios Remote Data Processor: passive check results become records of metricOutput.

    POST /nrdp/     token=…&cmd=submitcheck&XMLDATA=<checkresults>…   (or JSONDATA={"checkresults"…)
    POST /nrdp/CE/  the same; the services are of the flavour CE

A result has the name of a host, that of a service unless it is one of the host, a state, an output,
and perhaps the time of the check. Answers have the form of NRDP's, in the format of the data.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote
from xml.sax.saxutils import escape

from aiohttp import web

from sam_pipeline.consumer.core.outcome import UnloadedRecord
from sam_pipeline.consumer.sources.door.answers import BAD_REQUEST, OK, HttpProblem, Reply
from sam_pipeline.consumer.sources.door.dialects.forms import parameters_in
from sam_pipeline.consumer.sources.door.exchange import Exchange, response_to
from sam_pipeline.schema.messages.message import MESSAGE_ID, Message, pack
from sam_pipeline.schema.records.classes import METRIC_OUTPUT, Names
from sam_pipeline.schema.records.json_form import VALUES_PER_RECORD
from sam_pipeline.schema.records.normalise import HOST_STATES, Limits
from sam_pipeline.schema.records.plugin_output import split_output, unescaped
from sam_pipeline.schema.records.text import Record
from sam_pipeline.schema.times import format_time

HOST_METRIC = "Host-Check"
"""The metric of the results of hosts, which have no service name."""
HOST_FLAVOUR = "Host"
SERVICE_FLAVOUR = "Service"
"""Of a service for which neither the path nor the result has a flavour."""

PRODUCT, VERSION = "nrdp", "2.0.3"
"""Those of the server whose requests and answers these are."""
MAX_QUOTED = 5
"""Bad results whose reasons are in an answer."""

SUBMIT, HELLO, COMMAND = "submitcheck", "hello", "submitcmd"
NO_DATA, TOO_MUCH_DATA, BAD_XML, BAD_JSON = "NO DATA", "TOO MUCH DATA", "BAD XML", "BAD JSON"
NO_COMMAND, COMMANDS_DISABLED = "NO COMMAND", "COMMANDS DISABLED"
NO_TOKEN, BAD_TOKEN = "NO TOKEN", "BAD TOKEN"
"""The messages of NRDP; the `information` beside them says more."""

_XML_DATA = ("xml", "xmldata", "XMLDATA")
_JSON_DATA = ("json", "jsondata", "JSONDATA")
_HOST_STATES = {**HOST_STATES, **dict(zip("012", HOST_STATES.values(), strict=True))}
_OUR_KEYS = Names(METRIC_OUTPUT.keys)
_MAX_VALUES = VALUES_PER_RECORD * Limits().max_records
"""In a request: each takes a multiple of its bytes in memory."""

Parameters = Mapping[str, str]
Result = Mapping[str, str]
"""What a result has, by name; its `type` is `host` or `service`."""


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
    parameters: Mapping[str, str] = {}
    try:
        exchange.intake.require_room()
        content = await exchange.body.whole_or_empty()
        parameters = await parameters_in(request, content, errors="replace")
        if parameters.get("cmd", "").lower() == HELLO:
            return response_to(greeting(parameters))
        identity = exchange.sender(parameters.get("token", ""))
        flavour = unquote(exchange.rest.strip("/"))
        messages = await asyncio.to_thread(submitted, parameters, flavour, datetime.now(UTC))
        waiting = exchange.deliver(messages, identity)
        outcomes = await asyncio.gather(*waiting)
    except HttpProblem as problem:
        raise NrdpRefusal(parameters, problem) from None
    results = sum(message.record_count or 0 for message in messages)
    letters = [letter for outcome in outcomes for letter in outcome.letters]
    return response_to(stored(parameters, results, letters))


def submitted(parameters: Parameters, flavour: str, now: datetime) -> list[Message]:
    """The results of a request, as messages; `flavour` is that of the path, or "".

    The messages have no id, so that the same results, with their times, are a redelivery.

    Raises:
        NrdpProblem: the request submits nothing, or what it submits can't be read.
    """
    command = parameters.get("cmd", "").lower()
    if command != SUBMIT:
        raise NrdpProblem(COMMANDS_DISABLED if command == COMMAND else NO_COMMAND)
    read, data = _data_of(parameters)
    if not data:
        raise NrdpProblem(NO_DATA)
    if max(data.count("<"), data.count(",")) > _MAX_VALUES:
        raise NrdpProblem(TOO_MUCH_DATA, f"more than {_MAX_VALUES} values in one request")
    records = [_record_of(result, flavour, now) for result in read(data)]
    messages = []
    for message in pack(records, METRIC_OUTPUT.name):
        headers = {name: value for name, value in message.headers.items() if name != MESSAGE_ID}
        messages.append(Message(headers, message.body))
    return messages


def stored(parameters: Parameters, results: int, letters: Sequence[UnloadedRecord]) -> Reply:
    """The answer to results that are stored, the bad ones as dead letters."""
    output = f"{results} checks processed"
    if letters:
        reasons = "; ".join(f"{letter.reason}: {letter.text}" for letter in letters[:MAX_QUOTED])
        output += f"; dead letters: {reasons}"
    result = {"status": 0, "message": "OK", "meta": {"output": output}}
    return _reply(OK, parameters, {"result": result})


def greeting(parameters: Parameters) -> Reply:
    """The answer to `hello`, by which clients look for NRDP."""
    response = {"status": 0, "message": "OK", "product": PRODUCT, "version": VERSION}
    return _reply(OK, parameters, {"response": response})


def _data_of(parameters: Parameters) -> tuple[Callable[[str], Iterable[Result]], str]:
    """The reader of the data, and the data; "" if there is none."""
    for read, names in ((_in_xml, _XML_DATA), (_in_json, _JSON_DATA)):
        if data := next(filter(None, map(parameters.get, names)), None):
            return read, data
    return _in_xml, ""


def _in_xml(data: str) -> Iterable[Result]:
    """The elements `checkresult`; raises NrdpProblem."""
    from xml.etree.ElementTree import ParseError

    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    try:
        root = fromstring(data.strip(), forbid_dtd=True)
    except DefusedXmlException:
        raise NrdpProblem(BAD_XML, "a document type is not accepted") from None
    except (ParseError, ValueError) as error:  # ValueError: an encoding that is not that of a text
        raise NrdpProblem(BAD_XML, str(error)) from None
    if root.tag != "checkresults":
        raise NrdpProblem(BAD_XML, f"expected the element checkresults, not {root.tag[:40]!r}")
    for result in root.iterfind("checkresult"):
        values = {element.tag: element.text or "" for element in result}
        yield {**values, "type": result.get("type", "host")}


def _in_json(data: str) -> Iterable[Result]:
    """The objects of the list `checkresults`; raises NrdpProblem."""
    try:
        document = json.loads(data, parse_int=str, parse_float=str)
    except (ValueError, RecursionError) as error:
        raise NrdpProblem(BAD_JSON, str(error)) from None
    results = document.get("checkresults") if isinstance(document, dict) else None
    if not isinstance(results, list):
        raise NrdpProblem(BAD_JSON, "expected an object with a list checkresults")
    for number, result in enumerate(results, 1):
        if not isinstance(result, dict):
            raise NrdpProblem(BAD_JSON, f"result {number} is not an object")
        kind = result.get("checkresult")
        kind = kind.get("type", "host") if isinstance(kind, dict) else "host"
        texts = {name: value for name, value in result.items() if isinstance(value, str)}
        yield {**texts, "type": str(kind)}


def _record_of(result: Result, flavour: str, now: datetime) -> Record:
    """The record of a result; keys of records that it has, such as hostname, take precedence."""
    is_service = result["type"].lower() == "service"
    state = result.get("state", "").strip()
    output = split_output(unescaped(result.get("output", "")))
    record = {
        "serviceFlavour": (flavour or SERVICE_FLAVOUR) if is_service else HOST_FLAVOUR,
        "metricName": result.get("servicename", "") if is_service else HOST_METRIC,
        "metricStatus": state if is_service else _HOST_STATES.get(state.upper(), state),
        "timestamp": result.get("time", "").strip() or format_time(now),
        "summaryData": output.summary,
        "performanceData": output.performance_data,
        "detailsData": output.details,
    }
    ours = {_OUR_KEYS[name]: value for name, value in result.items() if value and _OUR_KEYS[name]}
    return {**record, **ours}


def _is_json(parameters: Parameters) -> bool:
    if output_type := parameters.get("output_type"):
        return output_type.upper().endswith("JSON")
    read, data = _data_of(parameters)
    return bool(data) and read is _in_json


def _reply(
    status: int, parameters: Parameters, document: Any, headers: Mapping[str, str] | None = None
) -> Reply:
    if _is_json(parameters):
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
