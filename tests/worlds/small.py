"""A grid of five sites in two federations over some days.

    ASTER-T1     large and reliable; one compute element flaps on the first day
    BIRCH-T2     storage fails for some hours; an unscheduled warning changes nothing
    CEDAR-T2     its probes send nothing
    DAHLIA-HPC   down for a scheduled repair that takes longer than announced
    ELDER-HPC    a worker node delays results, which arrive after newer ones

The same seed and first day give the same world, byte for byte.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from itertools import pairwise

from tests.worlds.model import (
    Downtime,
    Endpoint,
    Flavour,
    Function,
    Profile,
    Result,
    SiteGroup,
    World,
    midnight,
)

PROFILE = Profile(
    name="critical",
    flavours={
        "CE": Flavour(("org.sam.CE-JobSubmit", "org.sam.CE-Ping")),
        "ARC-CE": Flavour(("org.sam.ARC-JobSubmit", "org.sam.ARC-Infosys")),
        "SRM": Flavour(("org.sam.SRM-Put", "org.sam.SRM-Get", "org.sam.SRM-Ls")),
    },
    functions={"compute": Function(("CE", "ARC-CE")), "storage": Function(("SRM",))},
    vo="ops",
)
_TWO_ARCS = ("arc01", "ARC-CE"), ("arc02", "ARC-CE")
# Site, federation, region, weight, then hosts and flavours.
SITES: Sequence[tuple[str, str, str, int, Sequence[tuple[str, str]]]] = (
    ("ASTER-T1", "NORTH", "COAST", 9, (("ce01", "CE"), ("ce02", "CE"), ("se01", "SRM"))),
    ("BIRCH-T2", "NORTH", "HILLS", 3, (("ce01", "CE"), ("arc01", "ARC-CE"), ("se01", "SRM"))),
    ("CEDAR-T2", "NORTH", "COAST", 1, (("ce01", "CE"), ("se01", "SRM"))),
    ("DAHLIA-HPC", "SOUTH", "HILLS", 4, (*_TWO_ARCS, ("se01", "SRM"))),
    ("ELDER-HPC", "SOUTH", "COAST", 2, (("ce01", "CE"), ("arc01", "ARC-CE"), ("se01", "SRM"))),
)
SILENT = "CEDAR-T2"
LATE = "ELDER-HPC"
UNPROFILED_METRIC = "org.sam.CE-Version"
OTHER_VO = "physics"
INTERVAL_S = 1800
SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Episode:
    """A stretch in which every run of a metric has the same status."""

    start: datetime
    end: datetime
    status: str


def small_world(seed: int, first_day: date, days: int) -> World:
    """The world described above; its results begin on the evening before the first day."""
    chance = random.Random(f"{seed} {first_day}")
    endpoints = tuple(_endpoints(first_day, days))
    return World(
        first_day=first_day,
        days=days,
        endpoints=endpoints,
        site_groups=tuple(_site_groups(first_day)),
        downtimes=tuple(_downtimes(first_day, days)),
        results=tuple(_in_order_of_sending(_results(chance, endpoints, first_day, days), chance)),
    )


def host_of(site: str, name: str) -> str:
    return f"{name}.{site.partition('-')[0].lower()}.example.org"


def _endpoints(first_day: date, days: int) -> Iterator[Endpoint]:
    since = midnight(first_day) - timedelta(days=400)
    for site, _, _, _, services in SITES:
        for name, flavour in services:
            yield Endpoint(site, host_of(site, name), flavour, since)
    # New on the last day: expected from its midnight on.
    newcomer = midnight(first_day + timedelta(days=days - 1))
    yield Endpoint("ASTER-T1", host_of("ASTER-T1", "ce03"), "CE", newcomer)
    # Removed at the first midnight, though its results still arrive.
    yield Endpoint("BIRCH-T2", host_of("BIRCH-T2", "ce09"), "CE", since, midnight(first_day))
    # In the topology, but not monitored.
    yield Endpoint("DAHLIA-HPC", host_of("DAHLIA-HPC", "se09"), "SRM", since, monitored="N")
    # A service of another VO: the profile is for ops.
    yield Endpoint("ELDER-HPC", host_of("ELDER-HPC", "se02"), "SRM", since, vo=OTHER_VO)


def _site_groups(first_day: date) -> Iterator[SiteGroup]:
    since = midnight(first_day) - timedelta(days=400)
    for site, federation, region, weight, _ in SITES:
        yield SiteGroup(site, "federation", federation, since, weight=weight)
        yield SiteGroup(site, "region", region, since)


def _downtimes(first_day: date, days: int) -> Iterator[Downtime]:
    """Two downtimes, one of them announced again with a later end."""
    repair = midnight(first_day + timedelta(days=days // 2)) + timedelta(hours=7, minutes=30)
    announced = Downtime(
        *("DT-1001", repair, repair + timedelta(hours=6), repair - timedelta(days=3), "DAHLIA-HPC"),
        description="cooling of the machine room: all services off",
    )
    yield announced
    longer = announced.end + timedelta(hours=2, seconds=17)
    yield replace(announced, end=longer, announced_at=announced.end - timedelta(minutes=10))
    outage = _storage_outage(first_day, days)
    yield Downtime(
        *("DT-1002", outage.start, outage.end, outage.start),
        site="BIRCH-T2",
        host=host_of("BIRCH-T2", "se01"),
        classification="UNSCHEDULED",
        severity="WARNING",
        description="disk server replaced, transfers may fail",
    )


def _storage_outage(first_day: date, days: int) -> Episode:
    start = midnight(first_day + timedelta(days=(days - 1) // 2)) + timedelta(hours=20, minutes=11)
    return Episode(start, start + timedelta(hours=5), "CRITICAL")  # past midnight


def _results(
    chance: random.Random, endpoints: Iterable[Endpoint], first_day: date, days: int
) -> Iterator[Result]:
    for endpoint in endpoints:
        if endpoint.site == SILENT or endpoint.monitored == "N":
            continue
        own = (UNPROFILED_METRIC,) if endpoint.host.startswith("ce01.") else ()
        for metric in (*PROFILE.flavours[endpoint.flavour].metrics, *own):
            episodes = _episodes(chance, endpoint, metric, first_day, days)
            yield from _runs(chance, endpoint, metric, episodes, first_day, days)


def _episodes(
    chance: random.Random, endpoint: Endpoint, metric: str, first_day: date, days: int
) -> list[Episode]:
    """The episodes of a metric, of which later ones win; it is OK outside them."""
    episodes = list(_random_episodes(chance, first_day, days))
    if endpoint.host == host_of("ASTER-T1", "ce02") and metric.endswith("JobSubmit"):
        episodes += _flapping(midnight(first_day) + timedelta(hours=9))
    if endpoint.host == host_of("BIRCH-T2", "se01"):
        episodes.append(_storage_outage(first_day, days))
    if endpoint.site == "DAHLIA-HPC":  # switched off for longer than planned: its probes fail
        repair = next(iter(_downtimes(first_day, days)))
        episodes.append(Episode(repair.start, repair.end + timedelta(hours=3), "CRITICAL"))
    return episodes


def _random_episodes(chance: random.Random, first_day: date, days: int) -> Iterator[Episode]:
    statuses = ["WARNING"] * 3 + ["CRITICAL"] * 2 + ["UNKNOWN"]
    for number in range(days):
        if chance.random() < 0.35:
            start = midnight(first_day + timedelta(days=number))
            start += chance.randrange(86_400) * SECOND
            length = chance.randrange(INTERVAL_S, 5 * INTERVAL_S) * SECOND
            yield Episode(start, start + length, chance.choice(statuses))


def _flapping(start: datetime) -> Iterator[Episode]:
    edges = [start + number * INTERVAL_S * SECOND for number in range(13)]
    for number, (begin, end) in enumerate(pairwise(edges)):
        yield Episode(begin, end, "CRITICAL" if number % 2 else "OK")


def _runs(
    chance: random.Random,
    endpoint: Endpoint,
    metric: str,
    episodes: Sequence[Episode],
    first_day: date,
    days: int,
) -> Iterator[Result]:
    """A run every half hour, some seconds early or late, from 22:00 on the evening before."""
    end = midnight(first_day + timedelta(days=days))
    at = midnight(first_day) - timedelta(hours=2) + chance.randrange(INTERVAL_S) * SECOND
    while at < end:
        covering = [episode.status for episode in episodes if episode.start <= at < episode.end]
        yield _result(chance, endpoint, metric, covering[-1] if covering else "OK", at)
        at += (INTERVAL_S + chance.randint(-90, 90)) * SECOND


def _result(
    chance: random.Random, endpoint: Endpoint, metric: str, status: str, at: datetime
) -> Result:
    site_domain = endpoint.host.partition(".")[2]
    return Result(
        host=endpoint.host,
        flavour=endpoint.flavour,
        metric=metric,
        status=status,
        measured_at=at,
        vo=endpoint.vo or "ops",
        site=endpoint.site,
        gathered_at=f"wn{chance.randrange(1, 40):02}.{site_domain}",
        summary=summary(chance, metric, status),
        details=details(chance, metric, status),
        performance_data=performance_data(chance, metric),
    )


def _in_order_of_sending(results: Iterable[Result], chance: random.Random) -> list[Result]:
    """The results in order of time, but for some late ones; with second opinions and another VO."""
    sent: list[tuple[datetime, Result]] = []
    for result in results:
        is_late = result.site == LATE and chance.random() < 0.05
        delay = timedelta(hours=chance.randrange(1, 8)) if is_late else timedelta(seconds=5)
        sent.append((result.measured_at + delay, result))
        if chance.random() < 0.02:
            sent.append((result.measured_at + delay, _second_opinion(result, chance)))
        if chance.random() < 0.02:
            said = summary(chance, result.metric, "CRITICAL")
            of_another = replace(result, vo=OTHER_VO, status="CRITICAL", summary=said)
            sent.append((result.measured_at + delay, of_another))
    sent.sort(key=lambda pair: pair[0])
    return [result for _, result in sent]


def _second_opinion(result: Result, chance: random.Random) -> Result:
    """Another status at the same time, from the same worker node or from another one."""
    status = chance.choice(["OK", "WARNING", "CRITICAL"])
    elsewhere = "wn99." + result.gathered_at.partition(".")[2]
    return replace(
        result,
        status=status,
        gathered_at=chance.choice([result.gathered_at, elsewhere]),
        summary=summary(chance, result.metric, status),
    )


# The texts of probes ------------------------------------------------------------------------------


SUMMARIES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "JobSubmit": {
        "OK": ("job finished in {n} s", "success, {n} s in queue"),
        "WARNING": ("job still queued after {n} s",),
        "CRITICAL": (
            "job aborted: no worker node took it in {n} s",
            "submission refused: code {n}",
        ),
        "UNKNOWN": ("probe killed after {n} s",),
    },
    "Put": {
        "OK": ("{n} MB written and read back",),
        "WARNING": ("write took {n} s",),
        "CRITICAL": ("no space left in pool {n}", "connection timed out after {n} s"),
        "UNKNOWN": ("no credentials for the probe ({n} tries)",),
    },
    "": {
        "OK": ("answered in {n} ms",),
        "WARNING": ("answered slowly: {n} ms",),
        "CRITICAL": ("no answer within {n} s", "connection refused ({n} tries)"),
        "UNKNOWN": ("name server gave no address ({n} tries)",),
    },
}


def summary(chance: random.Random, metric: str, status: str) -> str:
    """One line, as a plugin prints first."""
    texts = next(texts for ending, texts in SUMMARIES.items() if metric.endswith(ending))
    return f"{status}: " + chance.choice(texts[status]).format(n=chance.randrange(2, 900))


def details(chance: random.Random, metric: str, status: str) -> str:
    """Some lines if the status is not OK, at times with unusual characters."""
    if status == "OK":
        return ""
    step = f"step {chance.randrange(1, 9)} failed after {chance.random():.3f} s"
    lines = [f"running {metric}", step]
    if chance.random() < 0.3:
        lines += ["", "Traceback: «délai dépassé»", "  at worker: line 42"]
    return "\n".join(lines)


def performance_data(chance: random.Random, metric: str) -> str:
    """Sometimes empty, as with many plugins."""
    return "" if "Ls" in metric else f"time={chance.random() * 30:.3f}s;30;60;0"
