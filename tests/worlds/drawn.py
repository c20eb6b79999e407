"""Random small worlds with many edge cases: midnights, ties, expiries, touching intervals.

A world draws a handful of times first and uses only these, so that results, downtimes, exclusions
and topology often start and end at the same second, or one second apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from datetime import UTC, date, datetime, timedelta
from itertools import chain, product
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.worlds.drawn_setting import DAYS, FLAVOURS, HOST, METRICS, Setting
from tests.worlds.model import Downtime, Endpoint, Exclusion, Result, SiteGroup, World, midnight

LONG_AGO = midnight(date(2022, 1, 1))
MOMENTS = 6
"""The number of times that a world uses, without those one second before or after them."""
HOSTS = (HOST, "h2")
SITE, ANY_HOST = st.sampled_from(("A", "A", "B")), st.sampled_from(HOSTS)
PERFORMANCE_DATA = (
    "",
    "time=10s;10;20;0",
    "time=10.001s",
    "time=20",
    "time=21ms size=5MB",
    "size=11;; 'time'=-1",
    "time=U",
    "'free space'=9%",
)
KINDS = (
    ("SCHEDULED", "OUTAGE"),
    ("SCHEDULED", "OUTAGE"),
    ("UNSCHEDULED", "OUTAGE"),
    ("SCHEDULED", "WARNING"),
)
GRID_SITE = "GRID"
"""The grid site of some endpoints of both sites; that of some others is B."""
STRANGE_FLAVOUR, STRANGE_METRIC = "SRM", "version"

Value = TypeVar("Value")
Row = TypeVar("Row", Endpoint, SiteGroup, Downtime, Result, Exclusion)


def drawn(strategy: st.SearchStrategy[Value], count: int, number: int) -> list[Value]:
    """`count` values of the strategy; the same `number` gives the same values."""
    values: list[Value] = []

    @seed(number)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def keep(value: Value) -> None:
        values.append(value)

    keep()
    return values


def worlds(setting: Setting) -> st.SearchStrategy[World]:
    """Worlds of the setting."""

    def world(moments: Sequence[datetime], *drawn: Iterable[Any]) -> World:
        """The drawn rows at the world's times, without rows that are one for the database."""
        rows = []
        for of_kind, key in zip(drawn, _KEYS, strict=True):
            at_times = [_placed(row, moments) for row in of_kind]
            by_key = {tuple(getattr(row, name) for name in key.split()): row for row in at_times}
            rows.append(tuple(by_key.values()))
        *others, exclusions = rows
        lasting = tuple(row for row in exclusions if row.start < row.end)
        return World(setting.first_day, DAYS, *others, lasting)

    return st.builds(
        world,
        st.lists(st.sampled_from(setting.moments), min_size=MOMENTS, max_size=MOMENTS),
        _endpoints(setting),
        st.builds(lambda *rows: list(chain(*rows)), st.lists(_SITE_GROUP, max_size=4), _SUCCESSION),
        st.lists(_DOWNTIME, max_size=4),
        _results(setting),
        st.lists(_EXCLUSION, max_size=3),
    )


_KEYS = (
    "site host flavour vo valid_from",
    "site group_type group_name valid_from",
    "downtime_id site host flavour announced_at",
    # Results with other statuses or values stand side by side.
    "host flavour metric vo fqan measured_at gathered_at monitoring_host status performance_data",
    "kind site host start",
)


# Times are drawn as indexes of the world's times, encoded as days of a month that no world uses.
_MONTH = datetime(1970, 1, 1, 12, tzinfo=UTC)
_ALL_TIMES = [
    _MONTH + timedelta(days=number, seconds=beside)
    for beside in (0, 0, 0, -1, 1)
    for number in range(MOMENTS)
]
_ANY_TIME = st.sampled_from(_ALL_TIMES)
_SOMETIMES_FROM = st.one_of(*[st.just(LONG_AGO)] * 3, _ANY_TIME)
_SOMETIMES_TO = st.one_of(*[st.none()] * 3, _ANY_TIME)


def _placed(row: Row, moments: Sequence[datetime]) -> Row:
    """The row at the world's times; the earlier of two is the start."""
    times = {
        field.name: _time(value, moments)
        for field in fields(row)
        if isinstance(value := getattr(row, field.name), datetime)
    }
    for start, end in (("start", "end"), ("valid_from", "valid_to")):
        if start in times and end in times:
            times[start], times[end] = sorted((times[start], times[end]))
    changes: dict[str, Any] = times
    return replace(row, **changes)


def _time(value: datetime, moments: Sequence[datetime]) -> datetime:
    if value >= LONG_AGO:
        return value
    number = value.day - 1
    return moments[number] + (value - _MONTH - timedelta(days=number))


_SITE_GROUP = st.builds(
    lambda name, **more: SiteGroup(group_type=name[0], group_name=name[1], **more),
    site=st.sampled_from(("A", "B", "NOT-THERE")),
    name=st.sampled_from((("federation", "G"), ("federation", "H"), ("region", "G"))),
    valid_from=_SOMETIMES_FROM,
    valid_to=_SOMETIMES_TO,
    weight=st.sampled_from((None, 0, 1, 7)),
)
# A site that leaves a group when another one joins it, as if it were renamed; or a changed weight.
_SUCCESSION = st.one_of(
    st.just(()),
    st.builds(
        lambda at, sites, weights: [
            SiteGroup(site, "federation", "G", start, end, weight)
            for site, start, end, weight in zip(
                sites, (LONG_AGO, at), (at, None), weights, strict=True
            )
        ],
        st.sampled_from(_ALL_TIMES[:MOMENTS]),
        st.sampled_from((("A", "B"), ("B", "A"), ("A", "A"), ("B", "B"))),
        st.sampled_from(((None, None), (1, 7), (7, 0), (0, None), (3, 3))),
    ),
)
# Of a site, a host, or a flavour of either; an announcement may prolong or cancel another one.
_DOWNTIME = st.builds(
    lambda of, kind, **more: Downtime(
        site=of[0], host=of[1], flavour=of[2], classification=kind[0], severity=kind[1], **more
    ),
    downtime_id=st.sampled_from(("D", "E", "")),
    start=_ANY_TIME,
    end=_ANY_TIME,
    announced_at=st.sampled_from([LONG_AGO + timedelta(days=day) for day in range(5)]),
    arrived_at=st.one_of(st.just(LONG_AGO + timedelta(days=9)), _ANY_TIME),
    of=st.sampled_from(
        [
            (site, host, flavour)
            for site, host in (
                *(("A", ""), ("", HOST), ("A", HOST), ("B", ""), ("B", "h2")),
                *((GRID_SITE, ""), (GRID_SITE, HOST)),
            )
            for flavour in ("", "", *FLAVOURS)
        ]
    ),
    kind=st.sampled_from(KINDS),
)
# Each names a monitoring host, site or host, so that it applies to only one world of a batch.
_TIMES = {"start": _ANY_TIME, "end": _ANY_TIME}
_METRIC = {
    "kind": st.just("metric"),
    "metric": st.sampled_from(METRICS),
    "flavour": st.sampled_from(("", "", *FLAVOURS)),
    **_TIMES,
}
_EXCLUSION = st.one_of(
    st.builds(
        Exclusion,
        st.just("monitoring-host"),
        **_TIMES,
        monitoring_host=st.sampled_from(("m1", "m2")),
    ),
    st.builds(Exclusion, st.just("site"), **_TIMES, site=SITE),
    st.builds(Exclusion, site=SITE, **_METRIC),
    st.builds(Exclusion, host=ANY_HOST, **_METRIC),
)


def _endpoints(setting: Setting) -> st.SearchStrategy[list[Endpoint]]:
    endpoint = st.builds(
        lambda names, validity, flags, vo: Endpoint(*names, *validity, vo, *flags),
        st.sampled_from(
            list(
                product(
                    ("A", "A", "B"),
                    HOSTS,
                    (*list(setting.profiles[0].flavours) * 3, STRANGE_FLAVOUR),
                )
            )
        ),
        st.one_of(*[st.just((LONG_AGO, None))] * 2, st.tuples(_SOMETIMES_FROM, _SOMETIMES_TO)),
        st.sampled_from(
            (
                *[("", "", "")] * 3,
                *[("", "", GRID_SITE)] * 2,
                *(("Y", "Y", "B"), ("N", "", GRID_SITE), ("", "N", "")),
            )
        ),
        st.sampled_from((*[""] * 5, "ops", "physics")),
    )
    return _seldom_few(st.lists(endpoint, min_size=3, max_size=8))


# Three results of one probe, with one choice for each property: the cost of drawing is choices.
_THREE = 3
_STATUSES = st.sampled_from(
    list(product(("OK", "OK", "CRITICAL", "WARNING", "UNKNOWN"), repeat=_THREE))
)
_THREE_TIMES = st.sampled_from(list(product(_ALL_TIMES[2 * MOMENTS :], repeat=_THREE)))
_VALUES = st.sampled_from(list(product(PERFORMANCE_DATA, repeat=_THREE)))


def _results(setting: Setting) -> st.SearchStrategy[list[Result]]:
    """Results, most of them of metrics that the first profile expects."""
    profile = setting.profiles[0]
    expected = [
        (flavour, metric, host)
        for flavour, of in profile.flavours.items()
        for metric in of.metrics
        for host in HOSTS
    ]
    strange = [(expected[0][0], STRANGE_METRIC, HOST), (STRANGE_FLAVOUR, METRICS[0], HOST)]
    # Without a VO in the profile the results of an instance must be of one VO.
    vos = ("cms",) if profile.vo is None else (*[profile.vo] * 4, "physics")
    fqans = ("", "/ops/x") if profile.fqan is None else (*[profile.fqan] * 3, "/ops/x")
    series = st.builds(
        _series,
        st.sampled_from([*expected, *expected, *expected, *strange]),
        st.sampled_from(
            list(product(vos, fqans, ("wn1", "wn2"), (("m1",), ("m2",), ("m1", "m2"))))
        ),
        _STATUSES,
        _THREE_TIMES,
        _VALUES,
    )
    results = st.lists(series, min_size=6, max_size=14).map(lambda drawn: list(chain(*drawn)))
    return _seldom_few(results)


def _seldom_few(rows: st.SearchStrategy[list[Value]]) -> st.SearchStrategy[list[Value]]:
    """All rows, but at most one in a fifth of the worlds."""
    limit = st.sampled_from((*[None] * 8, 1, 0))
    return st.builds(lambda drawn, at_most: drawn[:at_most], rows, limit)


def _series(
    instance: tuple[str, str, str],
    source: tuple[str, str, str, tuple[str, ...]],
    statuses: Sequence[str],
    times: Sequence[datetime],
    values: Sequence[str],
) -> list[Result]:
    """Results by one or two monitoring hosts, each with the statuses in an order of its own."""
    flavour, metric, host = instance
    vo, fqan, gathered_at, monitoring_hosts = source
    return [
        Result(
            *(host, flavour, metric, status, time, vo, fqan),
            gathered_at=gathered_at,
            monitoring_host=monitoring_host,
            performance_data=value,
        )
        for first, monitoring_host in enumerate(monitoring_hosts)
        for status, time, value in zip(
            (*statuses[first:], *statuses[:first]), times, values, strict=True
        )
    ]
