"""Numbered records of four classes, with a key in each that is found wherever the record goes."""

from __future__ import annotations

import random
import re
import string
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from tests.support.conservation import DAY_S

MAX_DETAILS = 10_000
HOSTS = 50
"""Hosts that a publisher reports on."""
_KEY = re.compile(rb"^(?:summaryData|name|downtimeId|hostName): (\w+-\d+)(?:\.soak\.test)?$", re.M)
_TEXT = "".join(random.Random(0).choices(string.ascii_letters + string.digits + " \n", k=20_000))
"""Of which details are parts; it hardly compresses."""


class RecordClass(NamedTuple):
    """A message class: the SQL that finds its keys and message ids, and its share of the load."""

    name: str
    share: float
    keys: str
    """A query of the column with the keys and of `messageId`, for a day or for a prefix."""


METRIC_OUTPUT = RecordClass(
    "metricOutput",
    1.0,
    "SELECT summaryData AS key, messageId AS id FROM metricOutput"
    " WHERE timestamp >= :day AND timestamp < :next_day",
)
ENDPOINT = RecordClass(
    "serviceEndpoint",
    0.01,
    "SELECT split_part(hostName, '.', 1) AS key, messageId AS id FROM serviceEndpoint"
    " WHERE hostName LIKE :prefix",
)
DOWNTIME = RecordClass(
    "downtime",
    0.01,
    "SELECT downtimeId AS key, messageId AS id FROM downtime WHERE downtimeId LIKE :prefix",
)
ENVIRONMENT = RecordClass(
    "metricEnvironment",
    0.05,
    "SELECT name AS key, messageId AS id FROM metricEnvironment WHERE name LIKE :prefix",
)
"""The class of docs/new-class.md."""
CLASSES: Mapping[str, RecordClass] = {
    item.name: item for item in (METRIC_OUTPUT, ENDPOINT, DOWNTIME, ENVIRONMENT)
}
WRONG_DETAILS = (
    "SELECT count(*) FROM metricOutput WHERE timestamp >= :day AND timestamp < :next_day"
    " AND summaryData LIKE :prefix"
    " AND length(detailsData) <> CAST(split_part(detailsData, ' ', 1) AS integer)"
)
"""Details begin with their length."""


def text_of(
    record_class: RecordClass, prefix: str, number: int, midnight: datetime, chance: random.Random
) -> str:
    """A record whose key is PREFIX-NUMBER; that of a result was measured on the day."""
    key = f"{prefix}-{number}"
    if record_class is ENDPOINT:
        fields = f"siteName: SOAK-{number % HOSTS}\nhostName: {key}.soak.test\nserviceFlavour: CE\n"
        return f"{fields}validFrom: {midnight:%Y-%m-%dT%H:%M:%SZ}\nEOT\n"
    if record_class is DOWNTIME:
        begin = midnight + timedelta(seconds=number)
        fields = f"downtimeId: {key}\nsiteName: SOAK-{number % HOSTS}\nseverity: OUTAGE\n"
        times = f"startTime: {begin:%Y-%m-%dT%H:%M:%SZ}\nendTime: {begin:%Y-%m-%dT23:59:59Z}\n"
        return f"{fields}classification: SCHEDULED\n{times}EOT\n"
    if record_class is ENVIRONMENT:
        run = uuid.uuid5(uuid.NAMESPACE_DNS, prefix)
        value = chance.randrange(10**6)
        fields = f"environmentId: {run}\nname: {key}\nvalue: {value}\n"
        return f"{fields}timestamp: {midnight:%Y-%m-%dT%H:%M:%SZ}\nEOT\n"
    seconds = int(midnight.timestamp()) + number // HOSTS % DAY_S
    status = "OK" if number % 20 else "WARNING"
    # Everything but the time and the key is the same in all windows.
    slot = prefix[8:]
    host = number % HOSTS
    return (
        f"hostName: ce{host}.soak.test\nserviceFlavour: CE\nsiteName: SOAK-{host}\n"
        f"metricStatus: {status}\nmetricName: org.soak.{slot}\nsummaryData: {key}\n"
        f"timestamp: {seconds}\n{_details(chance)}EOT\n"
    )


def keys_in(body: bytes) -> list[str]:
    """The keys of all records of a body, of any of the classes."""
    return [key.decode() for key in _KEY.findall(body)]


def midnight_of(day: int, today: datetime) -> datetime:
    """The beginning of the day `day` days before today."""
    return today.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(day)


def _details(chance: random.Random) -> str:
    """Nothing, or a text of up to 10 kB that begins with its length; most are short."""
    size = int(MAX_DETAILS * chance.random() ** 6)
    if size < 10:
        return ""
    head = f"{size} "
    start = chance.randrange(len(_TEXT) - size)
    body = _TEXT[start : start + size - len(head) - 1]
    return f"detailsData: {head}{body}.\n"
