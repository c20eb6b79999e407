"""The tables of scale.md, from tests/simulation/measured.json and results.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from tests.simulation.measured import CORES, MEASURED, NAMES, Measured, MeasuredKind, read_measured
from tests.simulation.plan import BROKER_CORES, consumer_rate, one_shot_costs, planned

Table = tuple[Iterable[str], Iterable[Iterable[str]]]
"""The head and the rows."""

RATES = (1_000, 10_000, 30_000, 100_000)
SERVERS = (2, 8, 16)
SCENES = {
    "base": "an undisturbed system",
    "broker-lost": "a broker lost for 5 minutes",
    "database-away": "the database away for 10 minutes",
    "small-disks": "the same, with a quarter of the disk it needs",
    "cut-off": "a site of 1,000 clients cut off for a day",
    "cut-off-default-spool": "the same, with the default limit of the spool",
}


@cache
def measured() -> Measured:
    return read_measured()


@cache
def results() -> Mapping[str, Any]:
    document: Mapping[str, Any] = json.loads(
        MEASURED.with_name("results.json").read_text(encoding="utf-8")
    )
    return document


def run() -> Table:
    document, machine = measured().document, measured().document["machine"]
    size = "small sizes (`QUICK=1`)" if document["quick"] else "full sizes"
    preliminary = measured().is_preliminary
    slowness = [kind.slowness(cell) for kind in measured().kinds() for cell in kind.cells]
    return ("", ""), (
        ("status", "**preliminary**: a short run, or a busy machine" if preliminary else "final"),
        ("measured", f"{document['measured_at']}, commit `{document['commit']}`, {size}"),
        (
            "machine",
            ", ".join(
                [
                    f"{machine['cores']} cores ({machine['processor']})",
                    f"{machine['memory_gb']} GB",
                    machine["system"],
                    f"Python {machine['python']}",
                ]
            ),
        ),
        ("load average before", f"{document['load_before']}"),
        ("a message in a drain took", f"{min(slowness):.2f} to {max(slowness):.2f} of the mean"),
        *(
            (f"drains with {NAMES[name]}", f"{own['software']}, {own['measured_at']}")
            for name, own in document["brokers"].items()
        ),
        ("message", f"one record of {document['message_bytes']} bytes"),
    )


def costs() -> Table:
    def row(kind: MeasuredKind) -> Iterable[str]:
        law = kind.law
        return (
            NAMES[kind.name],
            _us(law.publish_us),
            _us(law.deliver.alone_us),
            f"{_us(law.consumer.alone_us)}, {law.consumer.contention:.1%}",
            f"{_us(law.database.alone_us)}, {law.database.contention:.1%}",
            _count(consumer_rate(kind)),
        )

    head = ("µs for a message", "broker: store", "broker: deliver", "consumer, contention")
    return (*head, "PostgreSQL, contention", "one consumer process, messages/s"), (
        row(kind) for kind in measured().kinds()
    )


def law() -> Table:
    def row(kind: MeasuredKind, cores: int) -> Iterable[str]:
        rate, most = kind.law.on_one_machine(cores)
        own = (part.rate(cores) for part in kind.law.components().values())
        return (NAMES[kind.name], str(cores), *map(_count, own), _count(rate), most)

    head = ("", "cores", "consumers", "broker", "PostgreSQL", "all on one machine", "uses most")
    return head, (row(kind, cores) for kind in measured().kinds() for cores in CORES)


def plans() -> Table:
    def row(kind: MeasuredKind, rate: int) -> Iterable[str]:
        plan = planned(kind, rate)
        return (
            _count(rate),
            NAMES[kind.name],
            str(plan.brokers),
            str(plan.consumers),
            f"{plan.database_cores} on {plan.databases}",
            f"{plan.log_mb_s:.1f}",
            _count(plan.disk_gb_day),
            plan.first,
        )

    head = ("messages/s", "", f"brokers of {BROKER_CORES} cores", "consumer processes")
    return (*head, "cores on databases", "log, MB/s", "disk, GB/day", "at its limit first"), (
        row(kind, rate) for rate in RATES for kind in measured().kinds()
    )


def validation() -> Table:
    def row(kind: str, figure: str) -> Iterable[str]:
        pairs = [
            (own, model)
            for name, _, of, own, model in results()["validation"]
            if (name, of) == (kind, figure)
        ]
        offs = [abs(model / own - 1) for own, model in pairs]
        bound = "15 %" if figure == "messages/s" else "30 %"
        return (
            NAMES[kind],
            figure,
            str(len(pairs)),
            f"{sum(offs) / len(offs):.0%}".replace("%", " %"),
            f"{max(offs):.0%}".replace("%", " %"),
            bound,
        )

    kinds = list(dict.fromkeys(row[0] for row in results()["validation"]))
    return ("", "", "runs", "off on average", "off at most", "bound"), (
        row(kind, figure) for kind in kinds for figure in ("messages/s", "p99 lag, s")
    )


def base() -> Table:
    figures = results()["scenarios"]["base"]
    return ("", ""), (
        ("brokers, consumer processes", f"{figures['brokers']:.0f}, {figures['consumers']:.0f}"),
        ("rows/s", _count(figures["rate"])),
        ("lag, median and p99", f"{figures['median_lag_s']:.2f} s, {figures['p99_lag_s']:.2f} s"),
        (
            "processors busy: brokers, consumers, database",
            ", ".join(
                f"{figures[f'{part}_busy']:.0%}".replace("%", " %")
                for part in ("brokers", "consumers", "database")
            ),
        ),
    )


def scenarios() -> Table:
    def row(name: str) -> Iterable[str]:
        figures = results()["scenarios"][name]
        return (
            SCENES[name],
            _count(figures["backlog"]),
            _count(figures["spooled"]),
            _count(figures["refused"]),
            ("" if figures["caught_up"] else "not after ") + _duration(figures["caught_up_s"]),
        )

    head = ("", "at the brokers at most", "in spools at most", "refused")
    names = [name for name in results()["scenarios"] if name != "base"]
    return (*head, "caught up after"), map(row, names)


def storm() -> Table:
    def row(kind: MeasuredKind) -> Iterable[str]:
        measured_storm = kind.document["storm"]
        own = one_shot_costs(kind)
        return (
            NAMES[kind.name],
            _count(own.limit),
            _count(own.session_us),
            _count(measured_storm["result"]["client_us"] / 1000),
            _count(measured_storm["drain"]["rate"]),
            _count(own.drained_us),
            _count(measured_storm["spooling"]["client_us"] / 1000),
        )

    return (
        "",
        "sessions/s here",
        "broker, µs a session",
        "`sam-publish result`, ms of processor",
        "`spool drain --loop`, messages/s",
        "broker, µs a message",
        "`result` that spools, ms of processor",
    ), (row(kind) for kind in measured().kinds())


def one_shot() -> Table:
    def row(kind: MeasuredKind, cores: int) -> Iterable[str]:
        own = one_shot_costs(kind)
        drained = own.most(cores) * own.session_us / own.drained_us
        return (
            NAMES[kind.name],
            str(cores),
            _count(own.spool_from(cores)),
            _count(own.most(cores)),
            _count(drained),
        )

    head = ("", "cores of the broker", "spool from … results/s", "sessions/s at 70 %")
    return (*head, "drained, messages/s at 70 %"), (
        row(kind, cores) for kind in measured().kinds() for cores in SERVERS
    )


TABLES: Mapping[str, Callable[[], Table]] = {
    "scale-run": run,
    "scale-costs": costs,
    "scale-law": law,
    "scale-plan": plans,
    "scale-validation": validation,
    "scale-base": base,
    "scale-scenarios": scenarios,
    "scale-storm": storm,
    "scale-one-shot": one_shot,
}


def _us(value: float) -> str:
    return f"{value:.0f}"


def _count(value: float) -> str:
    """With two significant digits, as exact as such a figure is."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.2g}")
    return f"{rounded / 1e6:g} million" if rounded >= 1e6 else f"{rounded:,.0f}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
