"""Topology, groups, downtimes and exclusions of archived days, from the files of each day."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple
from datetime import date
from operator import itemgetter
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
from sam_pipeline.spark_jobs.rules.days import day_start
from sam_pipeline.spark_jobs.rules.groups import Member
from sam_pipeline.sql.archive.layout import ENDPOINT, MEMBER
from sam_pipeline.sql.archive.manifest import DOWNTIMES, EXCLUSIONS, TOPOLOGY

_MEMBERSHIP = (
    *("site", "service_flavour", "host_name", "vo", "production", "monitored"),
    *("valid_from_s", "valid_to_s", "grid_site"),
)
_EXCLUSION = EXCLUSION_COLUMNS.split(", ")
_MEMBER = ("group_type", "group_name", "site", "weight", "valid_from_s", "valid_to_s")
_DOWNTIME = (
    *("downtime_id", "site", "host_name", "service_flavour", "start_s", "end_s"),
    *("classification", "severity", "description", "announced_s"),
)


def read_archived(archived: ArchivedDays, days: Iterable[date]) -> dict[date, Announced]:
    """What `read_announced` reads from the database, for those of the days that are archived."""
    # A year has the same endpoints on most days: they are in memory once.
    known: dict[Membership, Membership] = {}
    return {day: _announced(archived, day, known) for day in days if day in archived}


def _announced(archived: ArchivedDays, day: date, known: dict[Membership, Membership]) -> Announced:
    topology = _rows(archived, day, TOPOLOGY, ["record", *{*_MEMBERSHIP, *_MEMBER}])
    return Announced(
        [
            known.setdefault(membership, membership)
            for row in topology
            if row["record"] == ENDPOINT
            for membership in [Membership(*(row[name] for name in _MEMBERSHIP))]
        ],
        in_order(_downtimes(archived, day)),
        [
            Exclusion(*(row[name] for name in _EXCLUSION))
            for row in sorted(
                _rows(archived, day, EXCLUSIONS, _EXCLUSION), key=itemgetter("exclusion_id")
            )
        ],
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
