"""Probe results of ETF, the Experiments Test Framework, as its nstream library writes them.

nstream is told about each check by Nagios and puts one JSON object a result into a directory
queue, whence stompclt may carry it to a broker. Which keys it writes is its setting `c_map`; here
the names of its documentation are known, the others are a subscription's `rename`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from sam_pipeline.schema.records.classes import DETAILS, MessageClass
from sam_pipeline.schema.records.json_form import read_json
from sam_pipeline.schema.records.text import BadRecord, Reading, ReadRecord

FLAVOUR = "serviceFlavour"
TAGS = "tags"
"""What ETF groups hosts and checks by: the service flavours, with blanks between."""

KEYS = {
    "metric": "metricName",
    "host": "hostName",
    "status": "metricStatus",
    "summary": "summaryData",
    "details": DETAILS,
    "perfdata": "performanceData",
    "serviceflavour": FLAVOUR,
    "servicetype": "serviceType",
    TAGS: TAGS,
}
"""By lower-case name; `timestamp` is the same here and there."""

_ESCAPED_LINE_END = r"(?<!\\)\\n"


def read_nstream(
    body: bytes,
    *,
    message_class: MessageClass | None = None,
    renames: Mapping[str, str],
    max_records: int = sys.maxsize,
) -> Reading:
    """The records of a body, one object or an array of them, with our keys.

    The only values that are no text, counters of performance data, become their JSON text.

    Raises:
        MessageRefused: more than `max_records`.
    """
    reading = read_json(
        body, renames={**KEYS, **renames}, max_records=max_records, nested_as_text=True
    )
    needs_flavour = message_class is not None and FLAVOUR in message_class.required
    return [
        _as_ours(each, needs_flavour) if isinstance(each, ReadRecord) else each for each in reading
    ]


def _as_ours(record: ReadRecord, needs_flavour: bool) -> ReadRecord | BadRecord:
    fields = dict(record.fields)
    flavours = _listed(fields.get(FLAVOUR, "")) or _listed(fields.pop(TAGS, ""))
    if flavours:
        fields[FLAVOUR] = ",".join(flavours)
    elif needs_flavour and not fields.get("serviceType"):
        words = f"item {record.line} names no service flavour: want it in {TAGS} or {FLAVOUR}"
        return BadRecord("missing-key", words, record.raw, record.line)
    if DETAILS in fields:  # Nagios hands over many lines as one
        fields[DETAILS] = re.sub(_ESCAPED_LINE_END, "\n", fields[DETAILS])
    return record._replace(fields=fields)


def _listed(text: str) -> list[str]:
    return text.replace(",", " ").split()
