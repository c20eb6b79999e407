"""A published month of a large grid, written straight into the tables: figures, timelines, results.

Deterministic: most sites are OK, some fail at times, some are silent or in downtime. A failure
affects one endpoint and, with it, its service, its function and its site.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

from psycopg2.extras import execute_values
from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, day_start, moment
from sam_pipeline.spark_jobs.rules.figures import Member, MemberDay, group_figures
from sam_pipeline.spark_jobs.rules.levels import ALL_NAMES, FIGURE_NAMES, METRIC, NAMES
from sam_pipeline.spark_jobs.rules.seconds import Seconds, rounded
from sam_pipeline.spark_jobs.runs.published import Segment

METRICS = {"CE": ("ping", "submit"), "SRM": ("put",)}
FUNCTIONS = {"CE": "compute", "SRM": "storage"}
# The share of endpoint days with a failure, for each of ten sites.
_KINDS = [0.01] * 6 + [0.15] * 2 + [0.8] * 2
_BAD = ("CRITICAL",) * 6 + ("UNKNOWN", "MISSING", "DOWNTIME", "WARNING")

_ODD_SITES = {0: "index", 1: "=SUM(A1) <b>&/../x", 2: "ÉCOLE " + 50 * "é"}
_TIMES = {"start_time", "end_time", "started_at", "finished_at", "sealed_at", "until"}

Stretch = tuple[int, int, str]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Size:
    """If `flapping` is given, every endpoint changes its status that often a day."""

    sites: int
    days: int
    endpoints: int
    flapping: int = 0


def site_name(number: int) -> str:
    return _ODD_SITES.get(number, f"SITE-{number:03d}")


def write_month(
    connection: Connection, profile: Profile, first: date, size: Size, first_run: int = 1
) -> Period:
    """Publish all days of the report, as runs from `first_run` on, and return their period."""
    period = Period(first, first + timedelta(days=size.days - 1))
    for run_id, day in enumerate(period.days(), first_run):
        _run(connection, profile, run_id, day)
        rows: dict[str, list[Row]] = {}
        for site in range(size.sites):
            for table, row in _site_day(day, site, size):
                rows.setdefault(table, []).append({"run_id": run_id, **row})
        for table, row in _groups(day, size):
            rows.setdefault(table, []).append({"run_id": run_id, **row})
        for table, table_rows in rows.items():
            insert(connection, table, table_rows)
    return period


def write_results(connection: Connection, period: Period, size: Size) -> int:
    """Insert, through the view, the results behind every stretch that is not OK; their number."""
    rows = [
        row
        for day in period.days()
        for site in range(size.sites)
        for number, stretches in enumerate(_endpoints(day, site, size))
        for row in _results(day, site, number, stretches)
    ]
    insert(connection, "metricOutput", rows)
    return len(rows)


def site_seconds(day: date, site: int, size: Size) -> Seconds:
    """The figure of a site's day."""
    return seconds_of(max(_endpoints(day, site, size), key=_not_ok))


def site_segments(day: date, site: int, size: Size) -> list[Segment]:
    """A site's day as pages read it: of the metrics only the segments that are not OK."""
    rows = (row for table, row in _site_day(day, site, size) if table == "timeline_segment")
    return [
        Segment(day, level, tuple(row[name] for name in NAMES[level]), start, end, status)
        for row in rows
        for level, start, end, status in [
            [row[name] for name in ("level", "start_time", "end_time", "status")]
        ]
        if level != METRIC or status != "OK"
    ]


def _run(connection: Connection, profile: Profile, run_id: int, day: date) -> None:
    key = {"run_id": run_id, "report": profile.name, "day": str(day)}
    finished = day_start(day) + DAY_S + 3600
    times = {"started_at": finished - 60, "finished_at": finished}
    read = {"results_read": 4_800_000, "results_ignored": '{"not in the profile": 7}'}
    read |= {"instances": 100_000, "input_digest": f"{run_id:064x}", "newest_result": 2**62}
    by = {"profile": profile.document, "software_version": "1", "who": "nightly"}
    insert(connection, "run", [{**key, **times, "state": "published", **read, **by}])
    insert(connection, "published_run", [key])


def _site_day(day: date, site: int, size: Size) -> Iterator[tuple[str, Row]]:
    """Rows of the figures and the timelines, and their tables."""
    by_endpoint = _endpoints(day, site, size)
    worst = max(by_endpoint, key=_not_ok)
    timelines: list[tuple[str, Row, Sequence[Stretch]]] = [("site", {}, worst)]
    for flavour in sorted({_flavour(number) for number in range(size.endpoints)}):
        is_worst = flavour == _flavour(by_endpoint.index(worst))
        stretches = worst if is_worst else [(0, DAY_S, "OK")]
        timelines.append(("function", {"function": FUNCTIONS[flavour]}, stretches))
        timelines.append(("service", {"service_flavour": flavour}, stretches))
    for number, stretches in enumerate(by_endpoint):
        endpoint_names = {"service_flavour": _flavour(number), "host_name": _host(site, number)}
        timelines.append(("endpoint", endpoint_names, stretches))
        timelines += [
            ("metric", {**endpoint_names, "metric_name": metric}, _measured(stretches))
            for metric in METRICS[_flavour(number)]
        ]
    start = day_start(day)
    for level, names, stretches in timelines:
        of_thing = {
            "level": level,
            **dict.fromkeys(ALL_NAMES, ""),
            "site": site_name(site),
            **names,
        }
        if level != "metric":
            of_figure = {name: of_thing[name] for name in ("level", *FIGURE_NAMES)}
            yield "figure", {**of_figure, **figures_of(stretches)}
        for begin, end, status in stretches:
            times = {"start_time": start + begin, "end_time": start + end}
            yield "timeline_segment", {**of_thing, **times, "status": status}


def _measured(stretches: Sequence[Stretch]) -> list[Stretch]:
    """The stretches of a metric of the endpoint, which has no downtimes of its own."""
    return [
        (start, end, "OK" if status == "DOWNTIME" else status) for start, end, status in stretches
    ]


def _not_ok(stretches: Sequence[Stretch]) -> int:
    return sum(end - start for start, end, status in stretches if status != "OK")


def _endpoints(day: date, site: int, size: Size) -> list[list[Stretch]]:
    """The stretches of each endpoint of the site on the day."""
    chance = random.Random(f"{day} {site}")
    bad_share = _KINDS[site % len(_KINDS)]
    return [
        _flaps(size.flapping) if size.flapping else _stretches(chance, bad_share)
        for _ in range(size.endpoints)
    ]


def _stretches(chance: random.Random, bad_share: float) -> list[Stretch]:
    if chance.random() >= bad_share:
        return [(0, DAY_S, "OK")]
    start = chance.randrange(0, DAY_S - 7200)
    end = min(DAY_S, start + chance.randrange(600, 50_000))
    status = chance.choice(_BAD)
    day = [(0, start, "OK"), (start, end, status), (end, DAY_S, "OK")]
    return [stretch for stretch in day if stretch[0] < stretch[1]]


def _flaps(changes: int) -> list[Stretch]:
    step = DAY_S // (changes + 1)
    cuts = [*range(0, step * (changes + 1), step), DAY_S]
    return [
        (start, end, "CRITICAL" if at % 2 else "OK")
        for at, (start, end) in enumerate(pairwise(cuts))
        if start < end
    ]


def _results(
    day: date, site: int, number: int, stretches: Sequence[Stretch]
) -> Iterator[dict[str, Any]]:
    for start, end, status in stretches:
        if status in ("OK", "MISSING", "DOWNTIME"):
            continue
        for metric in METRICS[_flavour(number)]:
            for at in range(start, end, 1800):
                second = day_start(day) + at
                yield {
                    "hostName": _host(site, number),
                    "serviceFlavour": _flavour(number),
                    "metricName": metric,
                    "metricStatus": status,
                    "timestamp": f"{moment(second):%Y-%m-%dT%H:%M:%SZ}",
                    "voName": "ops",
                    "gatheredAt": "wn1",
                    "monitoringHost": f"m{site % 2}",
                    "summaryData": f"{status}: <script>alert({at})</script> no answer",
                    "messageId": f"m-{second}-{number}-{metric}",
                    "publisher": f"key:nagios{site % 2}",
                }


def _groups(day: date, size: Size) -> Iterator[tuple[str, Row]]:
    members = [
        Member(kind, name.format(site // 10, site % 7), site_name(site), 1 + site % 5)
        for kind, name in (("federation", "FEDERATION-{0:02d}"), ("region", "REGION-{1}"))
        for site in range(size.sites)
    ]
    of_site = {site_name(site): site_seconds(day, site, size) for site in range(size.sites)}
    return group_rows([MemberDay(day, member, of_site[member.site]) for member in members])


def group_rows(members: Sequence[MemberDay]) -> Iterator[tuple[str, Row]]:
    """Rows of the members and the figures of groups on a day, and their tables."""
    for _, member, _ in members:
        yield "group_site", member._asdict()
    for figure in group_figures(members):
        names = dict(zip(("group_type", "group_name"), figure.names, strict=True))
        sites = {"sites_expected": figure.sites_expected, "sites_known": figure.sites_known}
        yield "group_figure", {**names, **_percentages(figure), **sites}


def figures_of(stretches: Sequence[Stretch]) -> Row:
    """The columns of a figure."""
    seconds = seconds_of(stretches)
    in_columns = {f"{name}_s": value for name, value in asdict(seconds).items()}
    return {**_percentages(seconds), **in_columns}


def seconds_of(stretches: Sequence[Stretch]) -> Seconds:
    seconds = Counter[str]()
    for start, end, status in stretches:
        seconds[status.lower()] += end - start
    return Seconds(**seconds)


def _percentages(of: Any) -> Row:
    exact = {name: rounded(getattr(of, name)) for name in ("availability", "reliability")}
    return {name: None if value is None else float(value) for name, value in exact.items()}


def _flavour(number: int) -> str:
    return "SRM" if number % 5 == 4 else "CE"


def _host(site: int, number: int) -> str:
    return f"{_flavour(number).lower()}{number:02d}.site{site:03d}.example.org"


def insert(connection: Connection, table: str, rows: Sequence[Row]) -> None:
    """Insert rows with the columns of the first; times are epoch seconds on both databases."""
    names = ", ".join(rows[0])
    if connection.dialect.name == "sqlite":
        values = ", ".join(f":{name}" for name in rows[0])
        connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({values})"), rows)
        return
    values = ", ".join(
        f"to_timestamp(%({name})s)" if name in _TIMES else f"%({name})s" for name in rows[0]
    )
    # A statement for each row would take ten times as long.
    execute_values(
        connection.connection.cursor(),
        f"INSERT INTO {table} ({names}) OVERRIDING SYSTEM VALUE VALUES %s",
        rows,
        template=f"({values})",
        page_size=1000,
    )
