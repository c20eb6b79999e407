"""Normalises the values of a record and turns it into the rows of its class.

In a record of a site's own class only times and blanks are normalised; the trigger of its view does
everything else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.records.classes import (
    BUILT_IN,
    DETAILS,
    DOWNTIME,
    METRIC_OUTPUT,
    PERIOD_KEYS,
    SITE_GROUP,
    TIME_KEYS,
    Names,
    built_in,
)
from sam_pipeline.schema.records.text import BLANKS, Record, text_lines, too_many
from sam_pipeline.schema.times import format_time, parse_day, utc, window

STATUSES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
"""In the order of the exit codes of monitoring plugins."""
HOST_STATES = {"UP": "OK", "DOWN": "CRITICAL", "UNREACHABLE": "UNKNOWN"}
"""The statuses of Nagios' host states; it knows nothing of an unreachable host."""

MONITORING_HOST_HEADERS = ("nagios_host", "nagiosHost")

TOO_OLD, IN_THE_FUTURE = "too-old", "in-the-future"

MOMENT, DAY, CLOCK = "moment", "day", "clock"
"""Kinds of time columns in a site's own class: a time in UTC, YYYY-MM-DD, hh:mm:ss."""

NO_TIMES: Mapping[str, str] = {}

_HOST = frozenset("abcdefghijklmnopqrstuvwxyz0123456789._:-")
"""The characters of a host, in lower case; a regular expression would be compiled by each call."""
_LONGEST_HOST = 300  # with trailing dots
# These are compiled when first needed, which is rare, so that publishing one result stays fast.
# The host of `[scheme://]host[:port][/path]`.
_URI = r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?(?:[^@/]*@)?(\[[^\]]*\]|[^:/?#]*)"
_CONTROL = r"[\x00-\x08\x0a-\x1f\x7f]"
_CLOCK = r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?"
_SURROGATE = r"[\ud800-\udfff]"
_FREE_TEXT = frozenset({"summarydata", DETAILS.lower(), "performancedata", "description"})
_TIMES = frozenset(key.lower() for key in TIME_KEYS)
_PERIODS = frozenset(key.lower() for key in PERIOD_KEYS)
_SPELLINGS = {known.name: Names([*known.keys, *TIME_KEYS]) for known in BUILT_IN.values()}


class Limits(NamedTuple):
    """Limits on the age of a metric result, and on the size and the records of a message.

    Rows count as records: a record with a list of flavours becomes several rows.
    """

    past: timedelta = timedelta(days=3653)
    future: timedelta = timedelta(minutes=10)
    max_message_bytes: int = 4 * 1024 * 1024
    max_records: int = 10_000


def normalise(
    fields: Mapping[str, str],
    class_name: str,
    headers: Mapping[str, str],
    now: datetime,
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
    times: Mapping[str, str] = NO_TIMES,
    made_at: str = "",
) -> list[Record]:
    """The rows of one record, without empty values: one, or one per flavour of a comma list.

    `headers` are those of the message; `now` is aware; `times` maps the keys (in lower case) of a
    site's own class that contain times, besides TIME_KEYS, to MOMENT, DAY or CLOCK. `made_at` is
    the time of the message if it is known, which becomes that of a statement without a timestamp.

    Raises:
        RecordRefused: the record can never be loaded.
        MessageRefused: it lists more flavours than a message may have records.
    """
    message_class = built_in(class_name)
    record: Record = {}
    if message_class is None:
        for key, value in fields.items():
            value = value.strip(BLANKS)
            kind = times.get(key.lower()) or (MOMENT if key.lower() in _TIMES else None)
            if value:
                record[key] = _time(key, value, kind) if kind else value
        return [record]
    spelling = _SPELLINGS[message_class.name]
    for name, value in fields.items():
        value = value.strip(BLANKS)
        if not value.isprintable():  # a quick test that nearly all values pass
            value = _tidy(name, value)
        if value:
            record[spelling[name] or name] = value
    for key in TIME_KEYS:
        if key in record:
            record[key] = _time(key, record[key])
    if message_class is METRIC_OUTPUT:
        if record.get("metricStatus", "OK") not in STATUSES:
            record["metricStatus"] = status_of(record["metricStatus"])
        if "serviceURI" in record:
            match = re.match(_URI, record["serviceURI"])
            record["hostName"] = match[1].strip("[]") if match else ""
        if "serviceFlavour" not in record and "serviceType" in record:
            record["serviceFlavour"] = record["serviceType"]
        if "monitoringHost" not in record:
            name = next(filter(headers.get, MONITORING_HOST_HEADERS), "")
            host = _tidy(name, headers[name].strip(BLANKS)) if name else ""
            if host := host or record.get("gatheredAt", ""):
                record["monitoringHost"] = host
    elif made_at and "timestamp" not in record:
        record["timestamp"] = made_at
    if "timestamp" in record:
        earliest, latest = window(now, limits.past, limits.future)
        time = record["timestamp"]
        # Times in our own format compare as texts.
        if time < earliest and message_class is METRIC_OUTPUT:
            text = f"timestamp {time} is more than {limits.past.days} days old"
            raise RecordRefused(TOO_OLD, text)
        if time > latest:
            text = f"timestamp {time} is in the future: the time is {format_time(now)}"
            raise RecordRefused(IN_THE_FUTURE, text)
    if "hostName" in record:
        record["hostName"] = _host(record["hostName"])
    if message_class is SITE_GROUP:
        weight = record.get("weight", "0")
        if not re.fullmatch("[0-9]{1,9}", weight):  # below 2^31, an integer of PostgreSQL
            raise RecordRefused("bad-weight", f"weight {weight[:40]!r} is not a whole number")
    flavours = record.get("serviceFlavour", "")
    rows = [record]
    if "," in flavours:
        if flavours.count(",") > limits.max_records:
            raise too_many(limits.max_records)
        del record["serviceFlavour"]
        names = dict.fromkeys(filter(None, map(str.strip, flavours.split(","))))
        rows = [{**record, "serviceFlavour": name} for name in names] or [record]
    missing = [key for key in message_class.required if key not in rows[0]]
    if message_class is DOWNTIME and "hostName" not in rows[0] and "siteName" not in rows[0]:
        missing.append("hostName or siteName")
    if missing:
        raise RecordRefused("missing-key", f"{message_class.name} needs {', '.join(missing)}")
    if message_class is DOWNTIME and record["endTime"] < record["startTime"]:
        text = f"endTime {record['endTime']} is before startTime {record['startTime']}"
        raise RecordRefused("bad-time", text)
    return rows


def status_of(text: str) -> str:
    """The status of a name in any case, or of the exit code of a plugin; one of STATUSES."""
    word = text.upper()
    if word in STATUSES and text.isascii():
        return word
    if text in ("0", "1", "2", "3"):
        return STATUSES[int(text)]
    names = ", ".join(STATUSES)
    raise RecordRefused("bad-status", f"metricStatus {text[:40]!r} must be one of {names}")


def _tidy(name: str, value: str) -> str:
    """The value with the line ends of the text form.

    Raises:
        RecordRefused: it contains a character that is not allowed in a value of this key.
    """
    if "\0" in value:
        raise RecordRefused("nul-byte", f"the value of {name} contains a NUL byte")
    if name.lower() not in _FREE_TEXT and re.search(_CONTROL, value):
        text = f"{name} {value[:80]!r} contains a control character"
        raise RecordRefused("control-character", text)
    if not value.isascii():
        value = re.sub(_SURROGATE, "\ufffd", value)
    return "\n".join(text_lines(value)).strip(BLANKS)


def _time(key: str, value: str, kind: str = MOMENT) -> str:
    try:
        if kind == MOMENT:
            return utc(value)
        if kind == DAY:
            return parse_day(value).isoformat()
        if re.fullmatch(_CLOCK, value, re.ASCII):
            return value
        raise ValueError(f"{value[:40]!r} is not a time of day (expected hh:mm:ss)")
    except ValueError as error:
        if kind == MOMENT and key.lower() in _PERIODS:
            with suppress(ValueError):
                return f"{parse_day(value).isoformat()}T00:00:00Z"
        raise RecordRefused("bad-time", f"{key}: {error}") from None


def _host(value: str) -> str:
    host = value.rstrip(".")
    if host.count(":") == 1:  # not an IPv6 address: a port, as in a serviceURI
        host, _, port = host.partition(":")
        host = host.rstrip(".") if port.isdigit() else ""
    if len(value) > _LONGEST_HOST or not (
        0 < len(host) <= 253 and host.isascii() and _HOST.issuperset(host.lower())
    ):
        raise RecordRefused("bad-host", f"hostName {value[:80]!r} is not a host name")
    return host.lower()
