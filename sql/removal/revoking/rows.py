"""The tables of the classes, the keys of their rows, and what reports read of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ClassTable:
    """The table of a class.

    `keys` are the columns of its unique key in the order of the JSON array in `claim.key`, and
    `casts` their values in it on PostgreSQL, with {} for the text of an element. Reports read
    `facts` of a row that counts from `start` until `end`.
    """

    view: str
    table: str
    keys: Sequence[str]
    casts: Sequence[str]
    start: str = ""
    end: str = ""
    facts: Sequence[str] = ()

    @property
    def key(self) -> str:
        return ", ".join(self.keys)

    def claimed(self, dialect: str) -> Sequence[str]:
        """Expressions of the columns of the key for a row of the table `claim`."""
        if dialect == "sqlite":
            return [f"key ->> {number}" for number in range(len(self.keys))]
        return [
            cast.format(f"CAST(key AS json) ->> {number}") for number, cast in enumerate(self.casts)
        ]


_INTEGER = "CAST({} AS integer)"
_TIME = "to_timestamp(CAST({} AS bigint))"

RESULTS = ClassTable(
    "metricOutput",
    "metric_result",
    ("instance_id", "measured_at", "gatherer_id"),
    (_INTEGER, _TIME, _INTEGER),
)
OTHERS = (
    ClassTable(
        "serviceEndpoint",
        "endpoint_membership",
        ("site_id", "endpoint_id", "vo_id", "valid_from"),
        (_INTEGER, _INTEGER, _INTEGER, _TIME),
        start="valid_from",
        end="valid_to",
        facts=("service_uri", "production", "monitored"),
    ),
    ClassTable(
        "siteGroup",
        "site_group_member",
        ("site_id", "site_group_id", "valid_from"),
        (_INTEGER, _INTEGER, _TIME),
        start="valid_from",
        end="valid_to",
        facts=("weight",),
    ),
    ClassTable("siteContact", "site_contact", ("site_id",), (_INTEGER,)),
    ClassTable(
        "downtime",
        "announced_downtime",
        ("downtime_id", "site_id", "host_id", "service_flavour_id", "start_key"),
        ("{}", _INTEGER, _INTEGER, _INTEGER, "CAST({} AS bigint)"),
        start="start_time",
        end="end_time",
        facts=("classification", "severity"),
    ),
)
