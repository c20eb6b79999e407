"""The tables of scale.md, from tests/benchmarks/measured.json."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache

from tests.benchmarks.law import CORES, NAMES, Measured, MeasuredKind, read_measured
from tests.benchmarks.plan import BROKER_CORES, consumer_rate, one_shot_costs, planned

Table = tuple[Iterable[str], Iterable[Iterable[str]]]
"""The head and the rows."""

RATES = (1_000, 10_000, 30_000, 100_000)
SERVERS = (2, 8, 16)


@cache
def measured() -> Measured:
    return read_measured()


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
