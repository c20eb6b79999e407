"""A published month of a large grid, written straight into SQLite: figures, timelines, results.

Deterministic: most sites are well, some fail now and then, some are silent or in downtime. What
fails is one endpoint, and with it its service, its function and its site.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, text

from spark_jobs.days import DAY_S, Period, day_start, moment
from spark_jobs.figures import Seconds, rounded
from spark_jobs.profile import Profile
from spark_jobs.status import STATUSES

METRICS = {"CE": ("ping", "submit"), "SRM": ("put",)}
FUNCTIONS = {"CE": "compute", "SRM": "storage"}
# Of 20 sites; the share of endpoint days on which something happens.
_KINDS = [0.01] * 14 + [0.15] * 4 + [0.7] * 2
_BAD = ("CRITICAL",) * 6 + ("UNKNOWN", "MISSING", "DOWNTIME", "WARNING")

Stretch = tuple[int, int, str]


@dataclass(frozen=True)
class Size:
    """`flapping` changes its state so often a day, on every endpoint."""

    sites: int
    days: int
    endpoints: int
    flapping: int = 0


def site_name(number: int) -> str:
    return f"SITE-{number:03d}"


def write_month(connection: Connection, profile: Profile, first: date, size: Size) -> Period:
    """Publish the days of the report; the period that they make."""
    period = Period(first, first + timedelta(days=size.days - 1))
    for run_id, day in enumerate(period.days(), 1):
        _run(connection, profile, run_id, day)
        for site in range(size.sites):
            _site_day(connection, run_id, day, site, size)
        _groups(connection, run_id, size.sites)
    return period


def write_results(connection: Connection, period: Period, size: Size) -> int:
    """The results behind every stretch that is not OK, through the view; how many."""
    rows = [
        row
        for day in period.days()
        for site in range(size.sites)
        for number, stretches in enumerate(_endpoints(day, site, size))
        for row in _said(day, site, number, stretches)
    ]
    connection.execute(
        text(
            f"INSERT INTO metricOutput ({', '.join(rows[0])}) VALUES"
            f" ({', '.join(f':{name}' for name in rows[0])})"
        ),
        rows,
    )
    return len(rows)


def _run(connection: Connection, profile: Profile, run_id: int, day: date) -> None:
    finished = day_start(day) + DAY_S + 3600
    _insert(
        connection,
        "run",
        [
            {
                "run_id": run_id,
                "report": profile.name,
                "day": str(day),
                "started_at": finished - 60,
                "finished_at": finished,
                "state": "published",
                "results_read": 4_800_000,
                "results_ignored": '{"not in the profile": 7}',
                "instances": 100_000,
                "input_digest": f"{run_id:064x}",
                "profile": profile.document,
                "software_version": "1",
                "who": "nightly",
            }
        ],
    )
    _insert(
        connection, "published_run", [{"report": profile.name, "day": str(day), "run_id": run_id}]
    )


def _site_day(connection: Connection, run_id: int, day: date, site: int, size: Size) -> None:
    name = site_name(site)
    by_endpoint = _endpoints(day, site, size)
    worst = max(
        by_endpoint, key=lambda stretches: sum(e - s for s, e, what in stretches if what != "OK")
    )
    flavours = sorted({_flavour(number) for number in range(size.endpoints)})
    lanes: list[tuple[str, Mapping[str, str], Sequence[Stretch]]] = [("site", {}, worst)]
    for flavour in flavours:
        mine = worst if flavour == _flavour(by_endpoint.index(worst)) else [(0, DAY_S, "OK")]
        lanes.append(("function", {"function": FUNCTIONS[flavour]}, mine))
        lanes.append(("service", {"service_flavour": flavour}, mine))
    for number, stretches in enumerate(by_endpoint):
        named = {"service_flavour": _flavour(number), "host_name": _host(site, number)}
        lanes.append(("endpoint", named, stretches))
        for metric in METRICS[_flavour(number)]:
            lanes.append(("metric", {**named, "metric_name": metric}, stretches))
    for level, names, stretches in lanes:
        if level != "metric":
            _insert(
                connection,
                f"{level}_figure",
                [{"run_id": run_id, "site": name, **names, **_figures(stretches)}],
            )
    _insert(
        connection,
        "timeline_segment",
        [
            {
                "run_id": run_id,
                "level": level,
                "site": name,
                "service_flavour": "",
                "host_name": "",
                "metric_name": "",
                "function": "",
                **names,
                "start_time": day_start(day) + start,
                "end_time": day_start(day) + end,
                "status": status,
            }
            for level, names, stretches in lanes
            for start, end, status in stretches
        ],
    )


def _endpoints(day: date, site: int, size: Size) -> list[list[Stretch]]:
    """What each endpoint of the site did on the day."""
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
    whole = [(0, start, "OK"), (start, end, status), (end, DAY_S, "OK")]
    return [each for each in whole if each[0] < each[1]]


def _flaps(changes: int) -> list[Stretch]:
    step = DAY_S // (changes + 1)
    cuts = [*range(0, step * (changes + 1), step), DAY_S]
    return [
        (start, end, "CRITICAL" if at % 2 else "OK")
        for at, (start, end) in enumerate(pairwise(cuts))
        if start < end
    ]


def _said(
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
                    "summaryData": f"{status}: no answer after {at % 60 + 30} s",
                    "messageId": f"m-{second}-{number}-{metric}",
                }


def _groups(connection: Connection, run_id: int, sites: int) -> None:
    groups = [("federation", f"FEDERATION-{site // 12:02d}", site) for site in range(sites)]
    groups += [("region", f"REGION-{site % 7}", site) for site in range(sites)]
    names = sorted({(kind, group) for kind, group, _ in groups})
    _insert(
        connection,
        "group_site",
        [
            {
                "run_id": run_id,
                "group_type": kind,
                "group_name": group,
                "site": site_name(site),
                "weight": site % 5,
            }
            for kind, group, site in groups
        ],
    )
    _insert(
        connection,
        "group_figure",
        [
            {
                "run_id": run_id,
                "group_type": kind,
                "group_name": group,
                "availability": 99.0,
                "reliability": 99.5,
                "sites_expected": 12,
                "sites_known": 12,
            }
            for kind, group in names
        ],
    )


def _figures(stretches: Sequence[Stretch]) -> dict[str, Any]:
    held = {f"{status.lower()}_s": 0 for status in STATUSES}
    for start, end, status in stretches:
        held[f"{status.lower()}_s"] += end - start
    seconds = Seconds(**{name.removesuffix("_s"): value for name, value in held.items()})
    return {
        "availability": _told(seconds.availability),
        "reliability": _told(seconds.reliability),
        **held,
    }


def _told(value: Any) -> float | None:
    figure = rounded(value)
    return None if figure is None else float(figure)


def _flavour(number: int) -> str:
    return "SRM" if number % 5 == 4 else "CE"


def _host(site: int, number: int) -> str:
    return f"{_flavour(number).lower()}{number:02d}.site{site:03d}.example.org"


def _insert(connection: Connection, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    names = ", ".join(rows[0])
    marks = ", ".join(f":{name}" for name in rows[0])
    connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({marks})"), rows)
