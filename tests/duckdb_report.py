"""The figures and timelines of a report once more, in DuckDB: the rules as SQL over Parquet files.

    python -m tests.duckdb_report DIRECTORY 2026-11-07 [LAST_DAY]

DIRECTORY has profile.toml and a Parquet file for each of INPUTS; figure.parquet and
timeline.parquet, of all days and levels, are put beside them. A second implementation, written
from the rules alone (`rule N` is that of the availability document): results of the profile's VO,
status as sent, with no monitoring host excluded; neither groups of groups nor own operations.

A parent counts its children by state. Each state has a digit of a large number, in the order of
the parent's operation, and a child that changes adds its new digit and takes off the old one. Then
the highest digit that isn't zero is the parent's state, and a running sum is its timeline.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

DAY_S = 86_400
_EPOCH = date(1970, 1, 1)

_NAMES = {name: pa.string() for name in ("site", "service_flavour", "host_name")}
INPUTS: Mapping[str, Mapping[str, Any]] = {
    "result": {
        "host_name": pa.string(),
        "service_flavour": pa.string(),
        "metric_name": pa.string(),
        "measured_at": pa.int64(),
        "status": pa.string(),
    },
    "membership": {
        **_NAMES,
        "vo": pa.string(),
        "production": pa.string(),
        "monitored": pa.string(),
        "valid_from": pa.int64(),
        "valid_to": pa.int64(),
    },
    "downtime": {
        **_NAMES,
        "start": pa.int64(),
        "stop": pa.int64(),
        "classification": pa.string(),
        "severity": pa.string(),
    },
    "exclusion": {
        "kind": pa.string(),
        **_NAMES,
        "metric_name": pa.string(),
        "start": pa.int64(),
        "stop": pa.int64(),
    },
}
"""Columns of the files; times are epoch seconds, an empty name of a downtime or exclusion is any."""

STATUSES = ("OK", "WARNING", "UNKNOWN", "MISSING", "DOWNTIME", "CRITICAL")
OPERATIONS = {
    "AND": STATUSES,
    "OR": ("MISSING", "DOWNTIME", "UNKNOWN", "CRITICAL", "WARNING", "OK"),
}
SECONDS = ("ok_s", "warning_s", "critical_s", "unknown_s", "missing_s", "downtime_s", "excluded_s")
NAMES = ("site", "service_flavour", "host_name", "metric_name", "function")
KEYS = {
    "metric": ("site", "service_flavour", "host_name", "metric_name"),
    "endpoint": ("site", "service_flavour", "host_name"),
    "service": ("site", "service_flavour"),
    "function": ("site", "function"),
    "site": ("site",),
}
# What a level says while something overrides its children (rules 7 and 8).
OVERRIDES = {"metric": "EXCLUDED", "endpoint": "DOWNTIME", "site": "UNKNOWN"}
_DIGIT_BITS = 20  # six digits of up to a million children

FIGURE = ("level", "day", *NAMES, *SECONDS, "availability", "reliability")
SEGMENT = ("level", "day", *NAMES, "start", "stop", "status")

# Rule 10, for both operations: the digit of a status, and the status of the highest digit.
_MACROS = f"""
CREATE MACRO status_order(operation) AS
    CASE operation WHEN 'AND' THEN {list(STATUSES)} ELSE {list(OPERATIONS["OR"])} END;
CREATE MACRO digit(operation, status) AS
    coalesce(
        CAST(1 AS hugeint)
        << CAST({_DIGIT_BITS} * (list_position(status_order(operation), status) - 1) AS hugeint),
        0
    );
CREATE MACRO highest(operation, present) AS
    CASE
        WHEN present = 0 THEN 'EXCLUDED'
        {" ".join(f"WHEN present >= {1 << _DIGIT_BITS * place} THEN status_order(operation)[{place + 1}]" for place in reversed(range(6)))}
    END;
CREATE MACRO is_yes(flag) AS
    coalesce(lower(trim(flag)) NOT IN ('n', 'no', 'false', 'f', '0'), true);
CREATE MACRO covers(selector, name) AS selector IN ('', name);
CREATE MACRO percent(part, whole) AS
    CAST((200 * 100000 * part + whole) // nullif(2 * whole, 0) AS bigint);
"""

# Rule 2: what is expected, of the newest row that is valid at midnight.
_EXPECTED = """
CREATE TABLE endpoint AS
WITH governing AS (
    SELECT d.day, d.start, d.stop, m.*
    FROM day AS d
    JOIN membership AS m
        ON m.valid_from <= d.start AND coalesce(m.valid_to > d.start, true)
    WHERE $vo IS NULL OR m.vo IN ('', $vo)
    QUALIFY row_number() OVER (
        PARTITION BY d.day, m.site, m.host_name, m.service_flavour, m.vo ORDER BY m.valid_from DESC
    ) = 1
)
SELECT DISTINCT g.day, g.start, g.stop, g.site, g.service_flavour, g.host_name
FROM governing AS g
WHERE is_yes(g.production) AND is_yes(g.monitored)
    AND g.service_flavour IN (SELECT service_flavour FROM profile_metric);

CREATE TABLE instance AS
SELECT row_number() OVER () AS instance, e.*, p.metric_name, p.validity
FROM endpoint AS e JOIN profile_metric AS p USING (service_flavour);
"""

# Rules 3 and 4: results of the day, the last one of the day before, MISSING before all of them.
# `packed` orders by second, then by harm: of two at one second the worse is later.
_READ = f"""
CREATE TABLE reading AS
WITH coded AS (
    SELECT host_name, service_flavour, metric_name, measured_at // {DAY_S} AS day,
        measured_at * 8 + CASE status {
    " ".join(f"WHEN '{name}' THEN {code}" for code, name in enumerate(STATUSES))
} END AS packed
    FROM result
    WHERE measured_at >= $start - {DAY_S} AND measured_at < $stop
)
SELECT i.instance, c.packed
FROM coded AS c JOIN instance AS i USING (day, host_name, service_flavour, metric_name)
WHERE c.packed < i.stop * 8
UNION ALL
SELECT i.instance, max(c.packed)
FROM coded AS c JOIN instance AS i
    ON i.day = c.day + 1 AND i.host_name = c.host_name
    AND i.service_flavour = c.service_flavour AND i.metric_name = c.metric_name
GROUP BY i.instance
UNION ALL
SELECT instance, (start - {DAY_S} - 1) * 8 + {STATUSES.index("MISSING")} FROM instance;
"""

# Rule 5, too. A row is a stretch from one result to the next; it becomes the changes in it and at
# its end: to MISSING where the result grows too old, and to the next result's status.
_CHANGES = f"""
CREATE TABLE stretch AS
SELECT instance, packed >> 3 AS moment, packed & 7 AS status, next >> 3 AS next_at, next & 7 AS next
FROM (
    SELECT instance, packed, lead(packed) OVER (PARTITION BY instance ORDER BY packed) AS next
    FROM reading
)
{{only_changes}};

CREATE TABLE change AS
WITH held AS (
    SELECT s.*, i.start,
        s.status <> {STATUSES.index("MISSING")}
            AND coalesce(s.moment + i.validity < coalesce(s.next_at, i.stop), false) AS expires,
        s.moment + i.validity AS expires_at
    FROM stretch AS s JOIN instance AS i USING (instance)
)
SELECT instance, start AS moment, NULL AS before, 'MISSING' AS status FROM instance
UNION ALL
SELECT instance, greatest(expires_at, start), {list(STATUSES)}[status + 1], 'MISSING'
FROM held WHERE expires
UNION ALL
SELECT instance, greatest(next_at, start),
    CASE WHEN expires THEN 'MISSING' ELSE {list(STATUSES)}[status + 1] END,
    {list(STATUSES)}[next + 1]
FROM held WHERE next IS NOT NULL;

CREATE TABLE metric_event AS
SELECT i.day, i.start, i.stop, {", ".join(f"i.{name}" for name in KEYS["metric"])},
    'AND' AS operation, c.moment, digit('AND', c.status) - digit('AND', c.before) AS delta,
    0 AS override
FROM change AS c JOIN instance AS i USING (instance);
"""

# Rules 8 to 10. A parent's events at one second are one; `override` counts what covers it.
_FOLD = """
CREATE TABLE {level}_status AS
WITH moved AS (
    SELECT day, start, stop, {keys}, operation, moment, sum(delta) AS delta, sum(override) AS override
    FROM {level}_event GROUP BY ALL
),
counted AS (
    SELECT *, sum(delta) OVER so_far AS present, sum(override) OVER so_far AS overriding
    FROM moved WINDOW so_far AS (PARTITION BY day, {keys} ORDER BY moment)
),
named AS (
    SELECT day, start, stop, {keys}, moment,
        CASE WHEN overriding > 0 THEN {overriding} ELSE highest(operation, present) END AS status
    FROM counted
),
compared AS (
    SELECT *, lag(status) OVER (PARTITION BY day, {keys} ORDER BY moment) AS before FROM named
)
SELECT * FROM compared WHERE before IS DISTINCT FROM status;
"""
_PARENT = """
CREATE TABLE {level}_event AS
SELECT c.day, c.start, c.stop, {keys}, p.operation, c.moment,
    digit(p.operation, c.status) - digit(p.operation, c.before) AS delta, 0 AS override
FROM {child}_status AS c JOIN {level}_operation AS p USING ({by});
"""
_OVERRIDE = """
INSERT INTO {level}_event
WITH covered AS (
    SELECT DISTINCT e.day, e.start, e.stop, {keys}, e.operation, o.number,
        greatest(o.start, e.start) AS first, least(o.stop, e.stop) AS last
    FROM {level}_event AS e JOIN {overrides} AS o ON {covers}
)
SELECT day, start, stop, {plain_keys}, operation, unnest([first, last]), 0, unnest([1, -1])
FROM covered WHERE first < last;
DELETE FROM {level}_event WHERE moment >= stop;
"""

_TIMELINE = """
SELECT '{level}' AS level, day, {names}, moment AS start,
    lead(moment, 1, stop) OVER (PARTITION BY day, {keys} ORDER BY moment) AS stop, status
FROM {level}_status
"""
# Rule 11. Percentages are stored as whole 100 000ths.
_FIGURES = f"""
CREATE TABLE figure AS
WITH summed AS (
    SELECT level, day, {", ".join(NAMES)}, sum(stop - start) AS known,
        {
    ", ".join(
        f"CAST(coalesce(sum(stop - start) FILTER (status = '{name[:-2].upper()}'), 0) AS bigint)"
        f" AS {name}"
        for name in SECONDS
    )
}
    FROM timeline WHERE level <> 'metric' GROUP BY ALL
),
shared AS (
    SELECT *, ok_s + warning_s AS up, known - unknown_s - missing_s - excluded_s AS whole
    FROM summed
)
SELECT level, day, {", ".join(NAMES)}, {", ".join(SECONDS)},
    percent(up, whole) AS availability, percent(up, whole - downtime_s) AS reliability
FROM shared;
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("first", type=date.fromisoformat, metavar="DAY")
    parser.add_argument("last", type=date.fromisoformat, nargs="?", metavar="LAST_DAY")
    args = parser.parse_args(argv)
    compute(args.directory, args.first, args.last or args.first)
    return 0


def write_inputs(
    directory: Path, profile: str, **tables: Iterable[Mapping[str, Any]] | pa.Table
) -> None:
    """Write profile.toml and the Parquet files; a table that isn't given is empty."""
    (directory / "profile.toml").write_text(profile, encoding="utf-8")
    for name, columns in INPUTS.items():
        rows = tables.get(name, ())
        if not isinstance(rows, pa.Table):
            rows = pa.Table.from_pylist(list(rows), schema=pa.schema(list(columns.items())))
        pq.write_table(rows, directory / f"{name}.parquet")


def compute(directory: Path, first: date, last: date, until: datetime | None = None) -> None:
    """Write the figures and timelines of the days; `until` ends a last day that is open."""
    profile = tomllib.loads((directory / "profile.toml").read_text(encoding="utf-8"))
    days = range((first - _EPOCH).days, (last - _EPOCH).days + 1)
    now = None if until is None else int(until.timestamp())
    with duckdb.connect() as database:
        for name in INPUTS:
            database.sql(f"CREATE VIEW {name} AS FROM '{directory / name}.parquet'")
        for statement in _statements(profile, days, now):
            database.execute(*statement)
        for name in ("figure", "timeline"):
            database.sql(f"COPY {name} TO '{directory / name}.parquet'")


def read_figures(directory: Path) -> set[tuple[Any, ...]]:
    """Rows of FIGURE; the day as a date, percentages in whole 100 000ths or None."""
    return _rows(directory / "figure.parquet", FIGURE)


def read_timeline(directory: Path) -> set[tuple[Any, ...]]:
    """Rows of SEGMENT; the day as a date, times in epoch seconds."""
    return _rows(directory / "timeline.parquet", SEGMENT)


Statement = tuple[str, ...] | tuple[str, Mapping[str, Any]]


def _statements(
    profile: Mapping[str, Any], days: Sequence[int], now: int | None
) -> Iterator[Statement]:
    """The whole computation, one statement after the other."""
    yield (_MACROS,)
    start, stop = days[0] * DAY_S, min((days[-1] + 1) * DAY_S, now or sys.maxsize)
    yield (
        f"CREATE TABLE day AS SELECT day, day * {DAY_S} AS start,"
        f" least((day + 1) * {DAY_S}, $stop) AS stop FROM range($first, $last + 1) AS d (day)",
        {"first": days[0], "last": days[-1], "stop": stop},
    )
    yield from _profile_tables(profile)
    endpoints, instances = _EXPECTED.split(";\n\n")
    yield endpoints, {"vo": profile.get("vo")}
    yield (instances,)
    yield _READ, {"start": start, "stop": stop}
    validity = "SELECT 1 FROM profile_metric WHERE validity IS NOT NULL"
    only_changes = f"WHERE next & 7 <> packed & 7 OR EXISTS ({validity})"
    yield (_CHANGES.format(only_changes=only_changes),)
    yield from _level("metric", "exclusion_of_metric")
    yield from _parent("endpoint", "metric", "service_flavour")
    yield from _level("endpoint", "downtime_that_counts")
    yield from _parent("service", "endpoint", "service_flavour")
    yield from _level("service")
    yield from _parent("function", "service", "service_flavour")
    yield from _level("function")
    yield from _parent("site", "function", "function")
    yield from _level("site", "exclusion_of_site")
    union = " UNION ALL ".join(_timeline(level) for level in KEYS)
    yield (f"CREATE TABLE timeline AS {union}",)
    yield (_FIGURES,)


def _profile_tables(profile: Mapping[str, Any]) -> Iterator[Statement]:
    """The profile file as tables: metrics with validity, and the operation of each parent."""
    unknown = {"operations", "thresholds", "fqan"} & set(profile)
    if unknown:
        raise ValueError(f"not in this implementation: {', '.join(sorted(unknown))}")
    flavours, functions = profile["flavours"], profile.get("functions")
    if not functions:  # every flavour is a function of its own name
        functions = {name: {"flavours": [name]} for name in flavours}
    validity = {"off": None}
    metrics = [
        (name, metric, validity.get(seconds, seconds))
        for name, flavour in flavours.items()
        for metric in flavour["metrics"]
        for seconds in [profile.get("validity", {}).get(metric, profile["validity_s"])]
    ]
    yield _table(
        "profile_metric", "service_flavour text, metric_name text, validity bigint", metrics
    )
    metrics_operation = profile.get("metrics_operation", "AND")
    yield _table(
        "endpoint_operation",
        "service_flavour text, operation text",
        [(name, metrics_operation) for name in flavours],
    )
    yield _table(
        "service_operation",
        "service_flavour text, operation text",
        [(name, flavour.get("endpoints_operation", "OR")) for name, flavour in flavours.items()],
    )
    members = [
        (flavour, name, function.get("flavours_operation", "OR"))
        for name, function in functions.items()
        for flavour in function["flavours"]
    ]
    yield _table(
        "function_operation", "service_flavour text, function text, operation text", members
    )
    sites_operation = profile.get("functions_operation", "AND")
    yield _table(
        "site_operation",
        "function text, operation text",
        [(name, sites_operation) for name in functions],
    )
    kinds = profile.get("downtimes", ["SCHEDULED/OUTAGE"])
    yield (
        "CREATE TABLE downtime_that_counts AS SELECT *, row_number() OVER () AS number,"
        " FROM downtime WHERE classification || '/' || severity IN (SELECT unnest($kinds))",
        {"kinds": kinds},
    )
    for kind, level in (("metric", "metric"), ("group", "site")):
        yield (
            f"CREATE TABLE exclusion_of_{level} AS SELECT *, row_number() OVER () AS number"
            f" FROM exclusion WHERE kind = '{kind}'",
        )


def _table(name: str, columns: str, rows: Sequence[Sequence[object]]) -> Statement:
    names = [column.split()[0] for column in columns.split(", ")]
    values = {
        column: list(found) for column, found in zip(names, zip(*rows, strict=True), strict=True)
    }
    types = dict(column.split() for column in columns.split(", "))
    unnested = ", ".join(f"unnest(CAST(${each} AS {types[each]}[])) AS {each}" for each in names)
    return f"CREATE TABLE {name} AS SELECT {unnested}", values


def _parent(level: str, child: str, by: str) -> Iterator[Statement]:
    own = [
        f"{'p' if name == 'function' and level == 'function' else 'c'}.{name}"
        for name in KEYS[level]
    ]
    yield (_PARENT.format(level=level, child=child, by=by, keys=", ".join(own)),)


def _level(level: str, overrides: str | None = None) -> Iterator[Statement]:
    keys = KEYS[level]
    if overrides:
        yield (
            _OVERRIDE.format(
                level=level,
                overrides=overrides,
                keys=", ".join(f"e.{name}" for name in keys),
                plain_keys=", ".join(keys),
                covers=" AND ".join(f"covers(o.{name}, e.{name})" for name in keys),
            ),
        )
    overriding = f"'{OVERRIDES[level]}'" if level in OVERRIDES else "NULL"
    yield (_FOLD.format(level=level, keys=", ".join(keys), overriding=overriding),)


def _timeline(level: str) -> str:
    keys = KEYS[level]
    names = ", ".join(name if name in keys else f"'' AS {name}" for name in NAMES)
    return _TIMELINE.format(level=level, keys=", ".join(keys), names=names)


def _rows(path: Path, columns: Sequence[str]) -> set[tuple[Any, ...]]:
    table = pq.read_table(path, columns=list(columns))
    at = columns.index("day")
    return {
        (*row[:at], datetime.fromtimestamp(row[at] * DAY_S, UTC).date(), *row[at + 1 :])
        for row in zip(*(column.to_pylist() for column in table.columns), strict=True)
    }


if __name__ == "__main__":
    sys.exit(main())
