"""Random settings: days, profiles and time of a run, shared by the worlds of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from hypothesis import strategies as st

from tests.oracle.oracle import AND, DAY_S, Table
from tests.worlds.model import Exclusion, Flavour, Function, Profile, Threshold, midnight

DAYS = 3
# Leap days, a February without one, ends of years, and changes of clocks in Europe.
FIRST_DAYS = (
    date(2024, 2, 28),
    date(2028, 2, 28),
    date(2026, 2, 27),
    date(2023, 12, 30),
    date(2024, 12, 31),
    date(2026, 3, 28),
    date(2026, 10, 24),
    date(2026, 11, 9),
)
HOST = "h1"
"""The host that some thresholds name."""
METRICS = ("ping", "put", "get")
FLAVOURS = ("CE", "SE", "XROOTD")
VALIDITIES = (
    *(*[None] * 6, 3600, 1, 21_600, 43_200, DAY_S - 1, DAY_S, DAY_S + 1, 100_000, 2 * DAY_S),
    *(3 * DAY_S, 5 * DAY_S - 1, 9 * DAY_S + 1),
)
RANGES = ("", "10", "10:", "~:10", "10:20", "@10:20", "-1:1")


@dataclass(frozen=True)
class Setting:
    """The days, profiles, time of the run (`until`) and exclusions that all its worlds share."""

    first_day: date
    profiles: tuple[Profile, ...]
    until: datetime
    exclusions: tuple[Exclusion, ...] = ()

    @property
    def days(self) -> list[date]:
        return [self.first_day + timedelta(days=number) for number in range(DAYS)]

    @property
    def days_before(self) -> int:
        """On how many days before the first one results count."""
        validities = [
            validity or 1
            for profile in self.profiles
            for validity in (profile.validity_s, *profile.validity_of.values())
        ]
        return -(-max(validities) // DAY_S)

    @property
    def moments(self) -> list[datetime]:
        """The times at which something may happen.

        They are midnights, quarters of days, times from which a result expires at midnight, the
        time of the run, and one other; of the days before the previous one only one each.
        """
        start, end = (midnight(self.first_day) + timedelta(days=at) for at in (-1, DAYS + 1))
        earlier = [start - timedelta(hours=24 * day - 5) for day in range(1, self.days_before + 1)]
        edges = [start + timedelta(hours=6 * at) for at in range(4 * (DAYS + 2) + 1)]
        midnights = [midnight(day) for day in self.days]
        expiries = [
            moment - timedelta(seconds=validity)
            for moment in midnights
            for profile in self.profiles
            for validity in (profile.validity_s, *profile.validity_of.values())
            if validity
        ]
        moments = [start + timedelta(seconds=54_321), *midnights, *expiries, *edges, self.until]
        return [*earlier, *(moment for moment in moments if moment <= end)]


@st.composite
def all_settings(draw: st.DrawFn) -> Setting:
    first_day = draw(st.sampled_from(FIRST_DAYS))
    end = midnight(first_day) + timedelta(days=DAYS)
    open_day = draw(st.booleans())
    until = end - timedelta(seconds=draw(st.integers(1, DAY_S - 1)) if open_day else -DAY_S)
    first, second = draw(profiles()), replace(draw(profiles()), name="others")
    if first.vo is not None and second.vo is None:  # it would refuse results of several VOs
        second = replace(second, vo=first.vo)
    setting = Setting(first_day, draw(st.sampled_from(((first,), (first, second)))), until)
    if not draw(st.booleans()):
        return setting
    two = st.lists(st.sampled_from(setting.moments), min_size=2, max_size=2, unique=True)
    start, end = sorted(draw(two))
    everywhere = Exclusion("metric", start, end, metric=draw(st.sampled_from(METRICS)))
    return replace(setting, exclusions=(everywhere,))


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    own = draw(st.dictionaries(st.sampled_from(("MINE", "YOURS")), tables()))
    operation = st.sampled_from(("AND", "OR", *own))
    flavour = st.builds(
        Flavour, st.lists(st.sampled_from(METRICS), min_size=1, unique=True).map(tuple), operation
    )
    flavours = draw(st.dictionaries(st.sampled_from(FLAVOURS), flavour, min_size=2))
    metrics = sorted({metric for flavour in flavours.values() for metric in flavour.metrics})
    function = st.builds(
        Function,
        st.lists(st.sampled_from(sorted(flavours)), min_size=1, unique=True).map(tuple),
        operation,
    )
    validity = st.sampled_from(VALIDITIES)
    return Profile(
        name="worlds",
        flavours=flavours,
        functions=draw(st.dictionaries(st.sampled_from(("f", "g", "h")), function)),
        metrics_operation=draw(operation),
        functions_operation=draw(operation),
        vo=draw(st.sampled_from(("ops", "", None))),
        fqan=draw(st.sampled_from((None, None, "", "/ops/pilot"))),
        validity_s=draw(validity),
        validity_of=draw(st.dictionaries(st.sampled_from(metrics), validity)),
        operations=own,
        thresholds=draw(_thresholds(flavours)),
        sites=draw(st.sampled_from((*[()] * 5, ("*A",), ("B", "*-B")))),
        groups=draw(st.sampled_from((*[()] * 5, ("federation/*G",), ("*/*H", "region/*")))),
        downtimes=draw(
            st.sampled_from((("SCHEDULED/OUTAGE",), ("SCHEDULED/OUTAGE", "UNSCHEDULED/OUTAGE"), ()))
        ),
        weights=draw(st.sampled_from(("", "", "argo"))),
        notice_s=draw(st.sampled_from((0, 0, 60, 21_600, DAY_S))),
    )


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """An operation from a random tree of statuses: two fold into their nearest common ancestor."""
    order = draw(st.permutations(AND))
    parents = {
        status: draw(st.sampled_from(order[: depth + 1])) for depth, status in enumerate(order[1:])
    }

    def line(status: str) -> list[str]:
        return [status, *(line(parents[status]) if status in parents else [])]

    return tuple(
        (a, b, next(ancestor for ancestor in line(a) if ancestor in line(b)))
        for index, a in enumerate(order)
        for b in order[index:]
    )


def _thresholds(flavours: Mapping[str, Flavour]) -> st.SearchStrategy[tuple[Threshold, ...]]:
    metrics = [(name, metric) for name, flavour in flavours.items() for metric in flavour.metrics]
    of = sorted({*metrics, *(("", metric) for _, metric in metrics)})
    rule = st.builds(
        lambda of, host, label, warning, critical: Threshold(
            of[1], label, warning, critical, host, of[0]
        ),
        of=st.sampled_from(of),
        host=st.sampled_from(("", HOST)),
        label=st.sampled_from(("time", "time", "size", "free space")),
        warning=st.sampled_from(RANGES),
        critical=st.sampled_from(RANGES),
    ).filter(lambda rule: bool(rule.warning or rule.critical))
    return st.lists(
        rule, max_size=4, unique_by=lambda rule: (rule.metric, rule.label, rule.host, rule.flavour)
    ).map(tuple)
