"""Turns passive check results of Nagios and NRDP into records of metricOutput.

A result has the name of a host, that of a service unless it is one of the host, a state, an output,
and perhaps the time of the check. Nagios reads one in each line of its external command file:

    [1795176000] PROCESS_SERVICE_CHECK_RESULT;ce01.example.org;org.example.CE-Ping;0;OK | rtt=3ms
    [1795176000] PROCESS_HOST_CHECK_RESULT;ce01.example.org;0;UP

Clients of NRDP submit XML or JSON:

    <checkresults><checkresult type="service"><hostname>ce01.example.org</hostname>…
    {"checkresults": [{"checkresult": {"type": "service"}, "hostname": "ce01.example.org", …}]}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Union
from xml.parsers import expat

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.records.classes import METRIC_OUTPUT, Names
from sam_pipeline.schema.records.normalise import HOST_STATES
from sam_pipeline.schema.records.plugin_output import split_output
from sam_pipeline.schema.records.text import Record, unescaped
from sam_pipeline.schema.times import format_time

HOST_METRIC = "Host-Check"
"""The metric of the results of hosts, which have no service name."""
HOST_FLAVOUR = "Host"
SERVICE_FLAVOUR = "Service"
"""The flavour of services for which none is given."""

SERVICE, HOST = "service", "host"
COMMANDS = {
    "PROCESS_SERVICE_CHECK_RESULT": (SERVICE, ("hostname", "servicename", "state", "output")),
    "PROCESS_HOST_CHECK_RESULT": (HOST, ("hostname", "state", "output")),
}
"""Kind of result and fields, by external command; the last field may contain any character."""

_COMMAND = re.compile(r"\s*\[\s*([0-9]{1,11})\s*\]\s*([A-Z_]{1,100})(?:;(.*))?", re.DOTALL)
_HOST_STATES = {**HOST_STATES, **dict(zip("012", HOST_STATES.values()))}
_OUR_KEYS = Names(METRIC_OUTPUT.keys)

CheckResult = Mapping[str, str]
"""The fields of a result by their names in NRDP; its `type` is `host` or `service`."""


class Naming(NamedTuple):
    """The flavour of services, and what precedes the names of metrics."""

    flavour: str = SERVICE_FLAVOUR
    metric_prefix: str = ""


def result_of_command(line: str) -> CheckResult:
    """The result in an external command of Nagios; raises RecordRefused for other lines."""
    match = _COMMAND.fullmatch(line)
    if not match:
        raise RecordRefused("no-command", f"{line[:80]!r} is not of the form [TIME] COMMAND;…")
    time, command, arguments = match.groups()
    if command not in COMMANDS:
        known = " or ".join(COMMANDS)
        raise RecordRefused("no-command", f"the command {command[:40]} is not {known}")
    kind, names = COMMANDS[command]
    values = (arguments or "").split(";", len(names) - 1)
    if len(values) < len(names) - 1:  # the output may be missing
        text = f"{command} has {len(values)} of {len(names)} fields: {';'.join(names)}"
        raise RecordRefused("no-command", text)
    return {**dict(zip(names, values)), "time": time, "type": kind}


def record_of_result(result: CheckResult, naming: Naming, now: datetime) -> Record:
    """The record of a result; keys of records that it has, such as siteName, take precedence."""
    is_service = result["type"].lower() == SERVICE
    state = result.get("state", "").strip()
    output = split_output(unescaped(result.get("output", "")))
    name = result.get("servicename", "").strip() if is_service else HOST_METRIC
    record = {
        "serviceFlavour": naming.flavour if is_service else HOST_FLAVOUR,
        "metricName": name and f"{naming.metric_prefix}{name}",
        "metricStatus": state if is_service else _HOST_STATES.get(state.upper(), state),
        "timestamp": result.get("time", "").strip() or format_time(now),
        "summaryData": output.summary,
        "performanceData": output.performance_data,
        "detailsData": output.details,
    }
    ours = {_OUR_KEYS[name]: value for name, value in result.items() if value and _OUR_KEYS[name]}
    return {**record, **ours}


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
    """The objects of the list `checkresults`; raises UnreadableResults, and uses nothing then."""
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
