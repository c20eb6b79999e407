"""Whether a run of the log shows growth of the processes that lived as long as it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.soak.growth import Growth, Sample, growth
from tests.soak.log import SAMPLE, SoakLog

MB = 1e6
TOOL = "this tool"
"""Our own process: it is shown, because its memory must not grow with the number of messages."""
SERIES = {"rss": ("memory", "MB", MB), "descriptors": ("open files", "", 1.0)}


def leaks(log: SoakLog, run: int) -> list[str]:
    """One sentence for each series of the product that grows."""
    return [
        f"a leak: {name}, {quantity}: {_shown(result, unit)}"
        for name, quantity, unit, result in growths(log, run)
        if result and result.is_leak and name != TOOL
    ]


def growth_lines(log: SoakLog, run: int) -> list[str]:
    """One line for each series."""
    return [
        f"  {name + ', ' + quantity:46}"
        + (_shown(result, unit) if result else "lived too short for a judgement")
        for name, quantity, unit, result in growths(log, run)
    ]


def growths(log: SoakLog, run: int) -> Iterator[tuple[str, str, str, Growth | None]]:
    """Process, quantity, unit, and the growth if the process lived long enough."""
    samples = list(log.entries(SAMPLE, run=run))
    for key, (quantity, unit, divisor) in SERIES.items():
        for name in samples[-1][key] if samples else ():
            points: list[Sample] = [
                (entry["at_s"], entry[key][name] / divisor)
                for entry in samples
                if entry[key].get(name) is not None
            ]
            yield name, quantity, unit, growth(points)


def _shown(result: Growth, unit: str) -> str:
    return (
        f"median {result.size:.1f} {unit}".rstrip()
        + f", slope {result.slope:+.2f} {unit}".rstrip()
        + f"/h (at least {result.lowest_slope:+.2f}), noise {result.noise:.2f}"
    )
