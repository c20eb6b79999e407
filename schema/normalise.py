"""What a record's values mean: one record as read becomes the rows of its class.

A record of a site's own class has only its times and blanks normalised: the rest is its
trigger's business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from schema.classes import (
    BUILT_IN,
    DETAILS,
    DOWNTIME,
    METRIC_OUTPUT,
    TIME_KEYS,
    MessageClass,
    built_in,
)
from schema.errors import RecordRefused
from schema.record import Record
from schema.times import format_time, parse_time

STATUSES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
"""By the exit code of a monitoring plugin."""

MONITORING_HOST_HEADERS = ("nagios_host", "nagiosHost")

_HOST = re.compile(r"[a-z0-9._:-]{1,253}", re.ASCII)
_URI = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?(?:[^@/]*@)?(\[[^\]]*\]|[^:/?#]*)")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_FREE_TEXT = frozenset({"summaryData", DETAILS, "performanceData", "description"})
_TIMES = frozenset(key.lower() for key in TIME_KEYS)
_SPELLINGS = {each.name: {key.lower(): key for key in each.keys} for each in BUILT_IN.values()}


@dataclass(frozen=True)
class Limits:
    """How far from now the timestamp of a metric result may lie."""

    past: timedelta = timedelta(days=3653)
    future: timedelta = timedelta(days=1)


def normalise(
    fields: Mapping[str, str],
    class_name: str,
    headers: Mapping[str, str],
    now: datetime,
    limits: Limits = Limits(),
) -> list[Record]:
    """The rows of one record: one, or one per flavour of a comma list; empty values left out.

    `headers` are the message's; `now` is aware.

    Raises:
        RecordRefused: the record can never be loaded.
    """
    message_class = built_in(class_name)
    record = _spelled(fields, message_class)
    record.update((key, _time(key, record[key])) for key in list(record) if key.lower() in _TIMES)
    if message_class is None:
        return [record]
    if message_class is METRIC_OUTPUT:
        record = _metric_result(record, headers, now, limits)
    if "hostName" in record:
        record["hostName"] = _host(record["hostName"], "hostName")
    flavours = _flavours(record.pop("serviceFlavour", ""))
    rows = [{**record, "serviceFlavour": flavour} for flavour in flavours] or [record]
    _require(rows[0], message_class)
    _refuse_control_characters(rows[0])
    return rows


def status_of(text: str) -> str:
    """OK, WARNING, CRITICAL or UNKNOWN, from the word in any case or a plugin's exit code."""
    word = text.upper()
    if word in STATUSES:
        return word
    if text in ("0", "1", "2", "3"):
        return STATUSES[int(text)]
    raise RecordRefused(
        "bad-status", f"metricStatus {text[:40]!r} is none of {', '.join(STATUSES)}"
    )


def host_of_uri(uri: str) -> str:
    """The host part of `[scheme://]host[:port][/path]`."""
    match = _URI.match(uri)
    return match.group(1).strip("[]") if match else ""


def _metric_result(
    record: Record, headers: Mapping[str, str], now: datetime, limits: Limits
) -> Record:
    filled = dict(record)
    if "metricStatus" in filled:
        filled["metricStatus"] = status_of(filled["metricStatus"])
    if "serviceURI" in filled:
        filled["hostName"] = host_of_uri(filled["serviceURI"])
    if "serviceFlavour" not in filled and "serviceType" in filled:
        filled["serviceFlavour"] = filled["serviceType"]
    monitoring_host = _monitoring_host(filled, headers)
    if monitoring_host:
        filled["monitoringHost"] = monitoring_host
    if "timestamp" in filled:
        _check_age(filled["timestamp"], now, limits)
    return filled


def _monitoring_host(record: Record, headers: Mapping[str, str]) -> str | None:
    named = [headers.get(name) for name in MONITORING_HOST_HEADERS]
    return next(
        filter(None, [record.get("monitoringHost"), *named, record.get("gatheredAt")]), None
    )


def _check_age(when: str, now: datetime, limits: Limits) -> None:
    # Times in our own form compare as texts.
    if when < format_time(now - limits.past):
        raise RecordRefused("too-old", f"timestamp {when} is over {limits.past.days} days old")
    if when > format_time(now + limits.future):
        raise RecordRefused("in-the-future", f"timestamp {when} is in the future")


def _spelled(fields: Mapping[str, str], message_class: MessageClass | None) -> Record:
    """The values that are there, without blanks around them, by the keys of the class."""
    spelling = _SPELLINGS[message_class.name] if message_class else {}
    stripped = ((key, value.strip(" \t")) for key, value in fields.items())
    return {spelling.get(key.lower(), key): value for key, value in stripped if value}


def _time(key: str, value: str) -> str:
    try:
        return _utc(value)
    except ValueError as error:
        raise RecordRefused("bad-time", f"{key}: {error}") from None


@lru_cache(maxsize=10_000)  # results of one round of probes share their times
def _utc(value: str) -> str:
    return format_time(parse_time(value))


def _host(value: str, key: str) -> str:
    host = value.lower().rstrip(".")
    if not _HOST.fullmatch(host):
        raise RecordRefused("bad-host", f"{key} {value[:80]!r} is no host name")
    return host


def _require(record: Record, message_class: MessageClass) -> None:
    missing = [key for key in message_class.required if key not in record]
    if message_class is DOWNTIME and "hostName" not in record and "siteName" not in record:
        missing.append("hostName or siteName")
    if missing:
        raise RecordRefused("missing-key", f"{message_class.name} needs {', '.join(missing)}")


def _refuse_control_characters(record: Record) -> None:
    for key, value in record.items():
        # Printable is quicker to tell, and true of nearly all.
        if not value.isprintable() and key not in _FREE_TEXT and _CONTROL.search(value):
            raise RecordRefused(
                "control-character", f"{key} {value[:80]!r} has a control character"
            )


def _flavours(comma_list: str) -> list[str]:
    return [item for item in dict.fromkeys(map(str.strip, comma_list.split(","))) if item]
