"""Topology, groups, downtimes and exclusions of archived days, from the files of each day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from datetime import date, timedelta
from functools import cache
from operator import attrgetter
from typing import Any

from sam_pipeline.spark_jobs.inputs.announced import (
    EXCLUSION_COLUMNS,
    Announced,
    Downtime,
    Exclusion,
    Membership,
    in_order,
)
from sam_pipeline.spark_jobs.inputs.archive.days import ArchivedDays, readable
from sam_pipeline.spark_jobs.inputs.archive.files import opened_parquet
from sam_pipeline.spark_jobs.rules.days import Period, day_start
from sam_pipeline.spark_jobs.rules.groups import Member
from sam_pipeline.sql.archive.layout import ENDPOINT, MEMBER
from sam_pipeline.sql.archive.manifest import DOWNTIMES, EXCLUSIONS, TOPOLOGY

_MEMBERSHIP = (
    *("site", "service_flavour", "host_name", "vo", "production", "monitored"),
    *("valid_from_s", "valid_to_s", "grid_site"),
)
_ONE_DAY = timedelta(days=1)
_EXCLUSION = EXCLUSION_COLUMNS.split(", ")
_MEMBER = ("group_type", "group_name", "site", "weight", "valid_from_s", "valid_to_s")
_DOWNTIME = (
    *("downtime_id", "site", "host_name", "service_flavour", "start_s", "end_s"),
    *("classification", "severity", "description", "announced_s"),
)


def read_archived(
    archived: ArchivedDays, period: Period, look_back: int, stored: Sequence[Exclusion]
) -> dict[date, Announced]:
    """What `read_announced` reads from the database, for those of the days that are archived.

    Args:
        stored: the exclusions in the database, for days that are not archived.
    """
    # A year has the same endpoints on most days: they are in memory once.
    known: dict[Membership, Membership] = {}

    @cache
    def exclusions_of(day: date) -> Sequence[Exclusion]:
        return _exclusions(archived, day) if day in archived else stored

    def read(day: date) -> list[Exclusion]:
        # The files of a day have the exclusions that end on the day before it, or later.
        earlier = (Period(day - n * _ONE_DAY, day - n * _ONE_DAY) for n in range(2, look_back + 1))
        ended = [
            exclusion
            for before in earlier
            for exclusion in exclusions_of(before.first)
            if before.start <= exclusion.end < before.end
        ]
        return sorted([*ended, *exclusions_of(day)], key=attrgetter("exclusion_id"))

    return {
        day: _announced(archived, day, read(day), known) for day in period.days() if day in archived
    }


def _exclusions(archived: ArchivedDays, day: date) -> list[Exclusion]:
    rows = _rows(archived, day, EXCLUSIONS, _EXCLUSION)
    return [Exclusion(*(row[name] for name in _EXCLUSION)) for row in rows]


def _announced(
    archived: ArchivedDays,
    day: date,
    exclusions: Sequence[Exclusion],
    known: dict[Membership, Membership],
) -> Announced:
    topology = _rows(archived, day, TOPOLOGY, ["record", *{*_MEMBERSHIP, *_MEMBER}])
    return Announced(
        [
            known.setdefault(membership, membership)
            for row in topology
            if row["record"] == ENDPOINT
            for membership in [Membership(*(row[name] for name in _MEMBERSHIP))]
        ],
        in_order(_downtimes(archived, day)),
        exclusions,
        _members([row for row in topology if row["record"] == MEMBER], day_start(day)),
    )


def archived_announcers(archived: ArchivedDays) -> dict[Downtime, str]:
    """The publishers of the downtimes of all archived days."""
    return {
        downtime: publisher
        for day in archived.manifests
        for downtime, publisher in _downtimes(archived, day).items()
    }


def _downtimes(archived: ArchivedDays, day: date) -> dict[Downtime, str]:
    """The downtimes of a day, with their publishers."""
    publishers = {}
    for row in _rows(archived, day, DOWNTIMES, [*_DOWNTIME, "publisher"]):
        values: list[Any] = ["" if row[name] is None else row[name] for name in _DOWNTIME]
        publishers[Downtime(*values)] = row["publisher"] or ""
    return publishers


def _members(rows: Sequence[dict[str, Any]], at: int) -> list[Member]:
    """The members of groups at a time, sorted; of several rows for a site the newest counts."""
    valid = [
        row
        for row in sorted(rows, key=lambda row: row["valid_from_s"])
        if row["valid_from_s"] <= at and (row["valid_to_s"] is None or row["valid_to_s"] > at)
    ]
    newest = {
        names: Member(*names, row["weight"] or 0)
        for row in valid
        for names in [(row["group_type"], row["group_name"], row["site"])]
    }
    return sorted(newest.values(), key=astuple)


def _rows(
    archived: ArchivedDays, day: date, kind: str, columns: Sequence[str]
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with readable():
        for file in archived.files(day, kind):
            with opened_parquet(archived.source, file, []) as parquet:
                rows += parquet.read(columns=list(columns), use_threads=False).to_pylist()
    return rows
