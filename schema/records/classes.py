"""The built-in message classes: their keys, required keys and natural keys.

A class is a view in the database, and its keys are the columns of the view. All programs know these
five classes; a site's own classes exist in the database only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

CHECK_CLASS = "sam-check"
"""The class of test messages (`check --connect`), which are never loaded."""

TIME_KEYS = ("timestamp", "startTime", "endTime", "validFrom", "validTo")
"""Keys whose values are times, in every class."""

PERIOD_KEYS = TIME_KEYS[1:]
"""Those at which a period begins or ends: there `YYYY-MM-DD` is the midnight at its start."""

DETAILS = "detailsData"
"""The key of a text of many lines, which is always the last of a record."""


class MessageClass(NamedTuple):
    """A class; `keys` have the spelling of the wire and the order of the view's columns."""

    name: str
    keys: tuple[str, ...]
    required: tuple[str, ...]
    natural_key: tuple[str, ...]


METRIC_OUTPUT = MessageClass(
    name="metricOutput",
    keys=(
        "hostName",
        "serviceURI",
        "serviceFlavour",
        "serviceType",
        "siteName",
        "metricName",
        "metricType",
        "metricStatus",
        "dataType",
        "performanceData",
        "timestamp",
        "gatheredAt",
        "monitoringHost",
        "summaryData",
        DETAILS,
        "voName",
        "voFqan",
        "role",
        "nagiosName",
        "encrypted",
    ),
    required=("metricName", "metricStatus", "timestamp", "hostName", "serviceFlavour"),
    natural_key=(
        "hostName",
        "serviceFlavour",
        "metricName",
        "voName",
        "voFqan",
        "timestamp",
        "gatheredAt",
        "monitoringHost",
    ),
)

SERVICE_ENDPOINT = MessageClass(
    name="serviceEndpoint",
    keys=(
        "siteName",
        "hostName",
        "serviceFlavour",
        "serviceURI",
        "voName",
        "gridSite",
        "production",
        "monitored",
        "validFrom",
        "validTo",
        "timestamp",
    ),
    required=("siteName", "hostName", "serviceFlavour", "validFrom"),
    natural_key=("siteName", "hostName", "serviceFlavour", "voName", "validFrom"),
)

SITE_GROUP = MessageClass(
    name="siteGroup",
    keys=("siteName", "groupName", "groupType", "weight", "validFrom", "validTo", "timestamp"),
    required=("siteName", "groupName", "groupType", "validFrom"),
    natural_key=("siteName", "groupName", "groupType", "validFrom"),
)

SITE_CONTACT = MessageClass(
    name="siteContact",
    keys=("siteName", "contact", "timestamp"),
    required=("siteName",),
    natural_key=("siteName",),
)

DOWNTIME = MessageClass(
    name="downtime",
    keys=(
        "downtimeId",
        "siteName",
        "hostName",
        "serviceFlavour",
        "startTime",
        "endTime",
        "classification",
        "severity",
        "description",
        "timestamp",
    ),
    required=("startTime", "endTime", "classification", "severity"),
    natural_key=("downtimeId", "siteName", "hostName", "serviceFlavour"),
)

STATEMENTS = (SERVICE_ENDPOINT, SITE_GROUP, SITE_CONTACT, DOWNTIME)
"""The classes of statements: all are kept, ordered by `timestamp`; of each key the last holds."""

BUILT_IN: Mapping[str, MessageClass] = {
    message_class.name.lower(): message_class for message_class in (METRIC_OUTPUT, *STATEMENTS)
}
"""By name in lower case, since class names compare like unquoted identifiers in SQL."""


class Names(dict[str, str]):
    """`names[name]` is the known spelling of a name in any case, "" for an unknown name.

    A name in its known spelling takes one dictionary look-up, which keeps reading fast.
    """

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__((form, name) for name in names for form in (name.lower(), name))

    def __missing__(self, name: str) -> str:
        return self.get(name.lower(), "")


KNOWN_KEYS = Names(key for message_class in BUILT_IN.values() for key in message_class.keys)
"""The keys of all built-in classes; no two of them differ only in case."""


@lru_cache(maxsize=100)
def column_names(columns: tuple[str, ...]) -> Names:
    """The columns of a view, which the keys of built-in classes also find in one look-up."""
    names = Names(columns)
    names.update({key: names[key] for key in KNOWN_KEYS.values() if names[key]})
    return names


@lru_cache(maxsize=100)  # called for each message and each record
def built_in(name: str | None) -> MessageClass | None:
    """The built-in class of that name, in any case; None for a site's own class."""
    return BUILT_IN.get(folded(name)) if name else None


@lru_cache(maxsize=100)
def folded(class_name: str) -> str:
    """The name in the form in which SQL compares unquoted identifiers: ASCII letters in lower case.

    `str.lower` alone would turn a KELVIN SIGN into a k.
    """
    if class_name.isascii():
        return class_name.lower()
    return "".join(letter.lower() if letter.isascii() else letter for letter in class_name)
