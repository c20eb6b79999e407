"""Reads probe results of ETF, the Experiments Test Framework, in the format of its nstream library.

Nagios calls nstream for each check, and nstream puts one JSON object per result into a directory
queue, from which stompclt may send it to a broker. The setting `c_map` of nstream defines the keys:
those in its documentation are known here, others need the `rename` of a subscription.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from sam_pipeline.schema.records.classes import DETAILS, MessageClass
from sam_pipeline.schema.records.json_form import read_json
from sam_pipeline.schema.records.plugin_output import unescaped
from sam_pipeline.schema.records.text import BadRecord, Reading, ReadRecord

FLAVOUR = "serviceFlavour"
TAGS = "tags"
"""The groups of hosts and checks in ETF, which are service flavours separated by blanks."""

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
"""Our keys by those of nstream in lower case; `timestamp` is the same in both."""


def read_nstream(
    body: bytes,
    *,
    message_class: MessageClass | None = None,
    renames: Mapping[str, str],
    max_records: int = sys.maxsize,
) -> Reading:
    """The records of a body, one object or an array of objects, with our keys.

    The only values that are not text, counters of performance data, become JSON text.

    Raises:
        MessageRefused: more than `max_records`.
    """
    needs_flavour = message_class is not None and FLAVOUR in message_class.required
    reading: Reading = []
    for record in read_json(
        body, renames={**KEYS, **renames}, max_records=max_records, nested_as_text=True
    ):
        if isinstance(record, ReadRecord):
            fields = dict(record.fields)
            flavours = _words(fields.get(FLAVOUR, "")) or _words(fields.pop(TAGS, ""))
            if flavours:
                fields[FLAVOUR] = ",".join(flavours)
            elif needs_flavour and not fields.get("serviceType"):
                text = (
                    f"item {record.line} has no service flavour (expected in {TAGS} or {FLAVOUR})"
                )
                reading.append(BadRecord("missing-key", text, record.raw, record.line))
                continue
            if DETAILS in fields:  # nstream passes on what Nagios has escaped
                fields[DETAILS] = unescaped(fields[DETAILS])
            record = record._replace(fields=fields)
        reading.append(record)
    return reading


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()
