"""Rule 13 in DuckDB: groups over a period, from the figures of sites and the members of groups."""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb

from tests.oracle.duckdb_rules import DAY_S

_EPOCH = date(1970, 1, 1)
_UP = "ok_s + warning_s"
_IN_SERVICE = f"{_UP} + critical_s"
_KNOWN = f"{_IN_SERVICE} + downtime_s"

_MEMBERS = f"""
WITH governing AS (
    SELECT f.day, m.group_type, m.group_name, m.site, m.weight,
        {_UP} AS up, {_KNOWN} AS known, {_IN_SERVICE} AS in_service
    FROM read_parquet($figures) AS f
    JOIN read_parquet($members) AS m
        ON m.site = f.site
        AND m.valid_from <= f.day * {DAY_S}
        AND coalesce(m.valid_to > f.day * {DAY_S}, true)
    WHERE f.level = 'site' AND f.day BETWEEN $first AND $last
    QUALIFY row_number() OVER (
        PARTITION BY f.day, m.group_type, m.group_name, m.site ORDER BY m.valid_from DESC
    ) = 1
)
SELECT group_type, group_name, site, sum(up), sum(known), sum(in_service),
    sum(CASE WHEN $argo THEN 1 + coalesce(weight, 0) ELSE coalesce(weight, 1) END)
        FILTER (known > 0),
    sum(CASE WHEN $argo THEN 1 + coalesce(weight, 0) ELSE coalesce(weight, 1) END)
        FILTER (in_service > 0)
FROM governing GROUP BY ALL
"""
# The members as an export has them: the weights are those that count.
_EXPORTED = f"""
SELECT group_type, group_name, site, sum({_UP}), sum({_KNOWN}), sum({_IN_SERVICE}),
    sum(weight) FILTER ({_KNOWN} > 0), sum(weight) FILTER ({_IN_SERVICE} > 0)
FROM read_parquet($files, hive_partitioning = true)
WHERE CAST(day AS date) BETWEEN $first AND $last
GROUP BY ALL
"""

Groups = dict[tuple[str, str], tuple[int | None, int | None, int, int]]
"""Availability and reliability in 100 000ths of a percent, sites expected, sites known."""


def groups(directory: Path, first: date, last: date, weights: str) -> Groups:
    """The groups over the days, from the files of `tests.oracle.duckdb_report`."""
    rows = _rows(
        _MEMBERS,
        figures=f"{directory / 'figure.parquet'}",
        members=f"{directory / 'member.parquet'}",
        first=(first - _EPOCH).days,
        last=(last - _EPOCH).days,
        argo=weights == "argo",
    )
    return _means(rows)


def exported_groups(directory: Path, first: date, last: date) -> Groups:
    """The groups over the days, from an export of one report to Parquet."""
    files = f"{directory}/report_group_site/*/*/*.parquet"
    return _means(_rows(_EXPORTED, files=files, first=first, last=last))


def _rows(statement: str, **values: object) -> list[tuple[Any, ...]]:
    with duckdb.connect() as database:
        return database.execute(statement, values).fetchall()


def _means(rows: list[tuple[Any, ...]]) -> Groups:
    members: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    for group_type, name, *member in rows:
        members.setdefault((group_type, name), []).append(tuple(member))
    return {
        group: (
            _mean([(up, known, weight) for _, up, known, _, weight, _ in of_group]),
            _mean([(up, of, weight) for _, up, _, of, _, weight in of_group]),
            len(of_group),
            sum(known > 0 for _, _, known, *_ in of_group),
        )
        for group, of_group in members.items()
    }


def _mean(parts: list[tuple[int, int, int | None]]) -> int | None:
    """Half up, in 100 000ths of a percent; None if nothing has a weight."""
    total = sum(int(weight or 0) for _, _, weight in parts)
    if not total:
        return None
    added = sum((Fraction(int(u) * int(w), int(o)) for u, o, w in parts if w), Fraction())
    return int(added / total * 10**7 + Fraction(1, 2))
