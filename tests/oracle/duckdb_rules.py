"""The rules of a report as SQL for DuckDB (`rule N` is that of the availability document).

A parent counts its children by state. Each state has a digit of a large number, in the order of
the parent's operation, and a child that changes adds its new digit and takes off the old one. Then
the highest digit that is not zero is the parent's state, and a running sum gives its timeline.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

DAY_S = 86_400
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
# The status of a thing while something overrides its children (rules 7 and 8).
OVERRIDES = {"metric": "EXCLUDED", "endpoint": "DOWNTIME", "site": "UNKNOWN"}
_DIGIT_BITS = 20  # six digits of up to a million children

_HIGHEST = " ".join(
    f"WHEN present >= {1 << _DIGIT_BITS * digit} THEN status_order(operation)[{digit + 1}]"
    for digit in reversed(range(len(STATUSES)))
)
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
        {_HIGHEST}
    END;
CREATE MACRO is_yes(flag) AS
    coalesce(lower(trim(flag)) NOT IN ('n', 'no', 'false', 'f', '0'), true);
CREATE MACRO covers(selector, name) AS selector IN ('', name);
CREATE MACRO percent(part, whole) AS
    CAST((200 * 100000 * part + whole) // nullif(2 * whole, 0) AS bigint);
"""

_DAYS = f"""
CREATE TABLE day AS
SELECT day, day * {DAY_S} AS start, least((day + 1) * {DAY_S}, $stop) AS stop
FROM range($first, $last + 1) AS d (day)
"""
_DOWNTIMES = """
CREATE TABLE downtime_that_counts AS
SELECT *, row_number() OVER () AS number
FROM (
    SELECT site, service_flavour, host_name, start, stop, classification, severity FROM downtime
    UNION ALL
    -- One that names a grid site, as one of each endpoint there.
    SELECT e.site, e.service_flavour, e.host_name,
        greatest(o.start, e.start), least(o.stop, e.stop), o.classification, o.severity
    FROM downtime AS o
    JOIN governing AS e
        ON o.site = e.grid_site
        AND covers(o.service_flavour, e.service_flavour)
        AND covers(o.host_name, e.host_name)
    WHERE o.site <> '' AND o.start < e.stop AND o.stop > e.start
)
WHERE classification || '/' || severity IN (SELECT unnest($kinds))
"""
_EXCLUSIONS = """
CREATE TABLE exclusion_of_{kind} AS
SELECT *, row_number() OVER () AS number FROM exclusion WHERE kind = '{kind}'
"""

# Rule 2: the expected endpoints; of the rows that are valid at midnight the newest governs.
_EXPECTED = """
CREATE TABLE governing AS
WITH newest AS (
    SELECT d.day, d.start, d.stop, m.*
    FROM day AS d
    JOIN membership AS m
        ON m.valid_from <= d.start AND coalesce(m.valid_to > d.start, true)
    WHERE ($vo IS NULL OR m.vo IN ('', $vo))
        AND (
            len($sites) = 0
            OR EXISTS (SELECT 1 FROM unnest($sites) AS s (name) WHERE m.site GLOB s.name)
        )
    QUALIFY row_number() OVER (
        PARTITION BY d.day, m.site, m.host_name, m.service_flavour, m.vo ORDER BY m.valid_from DESC
    ) = 1
)
SELECT * FROM newest
WHERE is_yes(production) AND is_yes(monitored)
    AND service_flavour IN (SELECT service_flavour FROM profile_metric);

CREATE TABLE endpoint AS
SELECT DISTINCT day, start, stop, site, service_flavour, host_name FROM governing;

CREATE TABLE instance AS
SELECT row_number() OVER () AS instance, e.*, p.metric_name, p.validity, p.look_back
FROM endpoint AS e JOIN profile_metric AS p USING (service_flavour);
"""

# Rules 3 to 5: results of the day, the last one of each day before it on which they count, MISSING
# before all of them.
# `packed` orders by second, then by severity: of two results at one second the worse is later.
_READ = f"""
CREATE TABLE reading AS
WITH coded AS (
    SELECT host_name, service_flavour, metric_name, measured_at // {DAY_S} AS day,
        measured_at * 8 + CASE status {
    " ".join(f"WHEN '{name}' THEN {code}" for code, name in enumerate(STATUSES))
} END AS packed
    FROM result
    WHERE measured_at >= $start - $look_back * {DAY_S} AND measured_at < $stop
),
later AS (
    SELECT instance, day - unnest(range(1, look_back + 1)) AS day,
        host_name, service_flavour, metric_name
    FROM instance
)
SELECT i.instance, c.packed
FROM coded AS c JOIN instance AS i USING (day, host_name, service_flavour, metric_name)
WHERE c.packed < i.stop * 8
UNION ALL
SELECT l.instance, max(c.packed)
FROM coded AS c JOIN later AS l USING (day, host_name, service_flavour, metric_name)
GROUP BY l.instance, l.day
UNION ALL
SELECT instance, (start - look_back * {DAY_S} - 1) * 8 + {STATUSES.index("MISSING")} FROM instance;
"""

# Rule 5, too. A row is a stretch from one result to the next. It gives the changes within it and at
# its end: to MISSING where the result expires, and to the status of the next result.
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

# Rules 8 to 10. Events of a parent at one second are merged; `override` counts its covers.
_FOLD = """
CREATE TABLE {level}_status AS
WITH moved AS (
    SELECT day, start, stop, {keys}, operation, moment,
        sum(delta) AS delta, sum(override) AS override
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

Statement = tuple[str, ...] | tuple[str, Mapping[str, Any]]


def statements(
    profile: Mapping[str, Any], days: Sequence[int], now: int | None
) -> Iterator[Statement]:
    """The whole computation, one statement after the other."""
    yield (_MACROS,)
    start, stop = days[0] * DAY_S, min((days[-1] + 1) * DAY_S, now or sys.maxsize)
    yield _DAYS, {"first": days[0], "last": days[-1], "stop": stop}
    yield from _profile_tables(profile)
    governing, *others = _EXPECTED.split(";\n\n")
    yield governing, {"vo": profile.get("vo"), "sites": profile.get("sites", [])}
    yield from ((statement,) for statement in others)
    yield _DOWNTIMES, {"kinds": profile.get("downtimes", ["SCHEDULED/OUTAGE"])}
    yield _READ, {"start": start, "stop": stop, "look_back": look_back(profile)}
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


def look_back(profile: Mapping[str, Any]) -> int:
    """On how many days before a day results count, of some metric."""
    return max(map(_look_back, [profile["validity_s"], *profile.get("validity", {}).values()]))


def _look_back(validity: int | str) -> int:
    return 1 if validity == "off" else max(1, -(-int(validity) // DAY_S))


def _profile_tables(profile: Mapping[str, Any]) -> Iterator[Statement]:
    """The profile file as tables: metrics with validity, and the operation of each parent."""
    unknown = {"operations", "thresholds", "fqan", "groups"} & set(profile)
    if unknown:
        raise ValueError(f"not supported here: {', '.join(sorted(unknown))}")
    flavours, functions = profile["flavours"], profile.get("functions")
    if not functions:  # every flavour is a function of its own name
        functions = {name: {"flavours": [name]} for name in flavours}
    validity = {"off": None}
    metrics = [
        (name, metric, validity.get(seconds, seconds), _look_back(seconds))
        for name, flavour in flavours.items()
        for metric in flavour["metrics"]
        for seconds in [profile.get("validity", {}).get(metric, profile["validity_s"])]
    ]
    metrics_operation = profile.get("metrics_operation", "AND")
    sites_operation = profile.get("functions_operation", "AND")
    endpoints = [(name, of.get("endpoints_operation", "OR")) for name, of in flavours.items()]
    members = [
        (flavour, name, function.get("flavours_operation", "OR"))
        for name, function in functions.items()
        for flavour in function["flavours"]
    ]
    of_metric = "service_flavour text, metric_name text, validity bigint, look_back bigint"
    by_flavour = "service_flavour text, operation text"
    by_function = "service_flavour text, function text, operation text"
    for table, columns, rows in (
        ("profile_metric", of_metric, metrics),
        ("endpoint_operation", by_flavour, [(name, metrics_operation) for name in flavours]),
        ("service_operation", by_flavour, endpoints),
        ("function_operation", by_function, members),
        (
            "site_operation",
            "function text, operation text",
            [(name, sites_operation) for name in functions],
        ),
    ):
        yield _table(table, columns, rows)
    for kind in ("metric", "site"):
        yield (_EXCLUSIONS.format(kind=kind),)


def _table(table: str, columns: str, rows: Sequence[Sequence[object]]) -> Statement:
    names = [column.split()[0] for column in columns.split(", ")]
    values = {
        column: list(cells) for column, cells in zip(names, zip(*rows, strict=True), strict=True)
    }
    types = dict(column.split() for column in columns.split(", "))
    unnested = ", ".join(f"unnest(CAST(${name} AS {types[name]}[])) AS {name}" for name in names)
    return f"CREATE TABLE {table} AS SELECT {unnested}", values


def _parent(level: str, child: str, by: str) -> Iterator[Statement]:
    of_function = level == "function"
    own = [f"{'p' if name == 'function' and of_function else 'c'}.{name}" for name in KEYS[level]]
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
