"""A run of the log as one SVG file: rate, lag, memory, disk and open files over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from pathlib import Path
from statistics import median

from tests.soak.growth import Sample
from tests.soak.log import SAMPLE, WINDOW, Entry

WIDTH, LEFT, RIGHT = 860, 70, 180
PANEL, GAP, TOP, BOTTOM = 120, 38, 62, 40
POINTS = 240
"""Of a line at most: each is the middle of the samples around it."""
MB = 1e6
# Different in print, too.
STROKES = (
    ("#1b4f8f", ""),
    ("#c0532b", "6 2"),
    ("#3b7d3b", "2 2"),
    ("#7b4397", "8 2 2 2"),
    ("#777777", "1 3"),
)
Middle = Callable[[Sequence[float]], float]


@dataclass(frozen=True)
class Panel:
    """Lines of one quantity; `is_log` is the scale of the axis."""

    title: str
    lines: Mapping[str, Sequence[Sample]]
    is_log: bool = False


def write_chart(file: Path, entries: Sequence[Entry]) -> None:
    """Draw the samples and windows of one run."""
    samples = [entry for entry in entries if entry["kind"] == SAMPLE]
    windows = [entry for entry in entries if entry["kind"] == WINDOW]
    if not samples:
        raise SystemExit("the log has no samples of this run")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(chart(samples, windows), encoding="utf-8")


def chart(samples: Sequence[Entry], windows: Sequence[Entry]) -> str:
    """The SVG; the time axis has minutes, or hours for a run of more than three of them."""
    last_s = samples[-1]["at_s"]
    unit, unit_s = ("h", 3600) if last_s > 3 * 3600 else ("min", 60)
    panels = panels_of(samples)
    height = TOP + len(panels) * (PANEL + GAP) + BOTTOM

    def x(at_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * at_s / float(last_s)

    parts = [_text(LEFT, 18, _title(windows, last_s), "start", size=14)]
    parts.append(_text(LEFT, 34, "dotted lines: all records were accounted for", "start"))
    bottom = TOP + len(panels) * (PANEL + GAP) - GAP
    ended_s = 0.0
    for window in windows:
        ended_s += window["seconds"]
        if ended_s < last_s:
            parts.append(_line(x(ended_s), TOP, x(ended_s), bottom, "#bbb", "1 3"))
    for number, panel in enumerate(panels):
        parts += _drawn(panel, TOP + number * (PANEL + GAP), x)
    step = _step(last_s / unit_s, 8)
    for tick in range(int(last_s / unit_s / step) + 1):
        at = x(tick * step * unit_s)
        parts.append(_line(at, bottom, at, bottom + 5, "#000"))
        parts.append(_text(at, bottom + 18, f"{tick * step:g}", "middle"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(_text(middle, bottom + 34, f"time since the start of the run ({unit})", "middle"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        ' font-family="sans-serif" role="img" aria-label="The soak over time">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def panels_of(samples: Sequence[Entry]) -> list[Panel]:
    """What the samples show, in the units of the axes."""

    def series(value: Callable[[Entry], float | None], middle: Middle = median) -> list[Sample]:
        points = [(entry["at_s"], value(entry)) for entry in samples]
        return _thinned([(at_s, y) for at_s, y in points if y is not None], middle)

    def of_processes(key: str, divisor: float) -> dict[str, list[Sample]]:
        return {
            name: series(
                lambda entry, name=name: (  # type: ignore[misc]
                    None if entry[key].get(name) is None else entry[key][name] / divisor
                )
            )
            for name in samples[0][key]
        }

    def disk(key: str) -> list[Sample]:
        return series(lambda entry: None if entry[key] is None else entry[key] / MB)

    rate = {
        "committed messages": _thinned(_rates(samples, "committed", is_sum=False), _mean),
        "records written": _thinned(_rates(samples, "published", is_sum=True), _mean),
    }
    sizes = {"database": "database_bytes", "brokers": "broker_bytes", "spools": "spool_bytes"}
    return [
        Panel("rate (1/s)", rate),
        Panel("lag (s)", {"of the consumer": series(lambda e: e["lag_s"], max)}, is_log=True),
        Panel("memory (MB)", of_processes("rss", MB)),
        Panel("disk (MB)", {name: disk(key) for name, key in sizes.items()}),
        Panel("open files", of_processes("descriptors", 1.0)),
    ]


def _rates(samples: Sequence[Entry], key: str, is_sum: bool) -> list[Sample]:
    """Per second since the last sample that has the key, whose value may be a sum so far."""
    rates, before_s, before = [], 0.0, 0.0
    for entry in samples:
        if entry[key] is not None:
            new = entry[key] - before if is_sum else entry[key]
            rates.append((entry["at_s"], new / max(0.1, entry["at_s"] - before_s)))
            before_s, before = entry["at_s"], entry[key]
    return rates


def _thinned(points: Sequence[Sample], middle: Middle) -> list[Sample]:
    size = ceil(len(points) / POINTS) or 1
    parts = (points[start : start + size] for start in range(0, len(points), size))
    return [(median(t for t, _ in part), middle([y for _, y in part])) for part in parts]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _drawn(panel: Panel, top: float, x: Callable[[float], float]) -> Iterator[str]:
    values = [y for line in panel.lines.values() for _, y in line]
    ticks = _log_ticks(values) if panel.is_log else _ticks(max(values, default=1.0))
    low, high = ticks[0], ticks[-1]

    def y(value: float) -> float:
        if panel.is_log:
            value = max(value, low)
            return top + PANEL * (1 - log10(value / low) / log10(high / low))
        return top + PANEL * (1 - value / high)

    yield _text(LEFT, top - 6, panel.title, "start", size=12)
    for tick in ticks:
        yield _line(LEFT, y(tick), WIDTH - RIGHT, y(tick), "#ddd")
        yield _text(LEFT - 6, y(tick) + 4, f"{tick:g}", "end")
    yield _line(LEFT, top, LEFT, top + PANEL, "#000")
    yield _line(LEFT, top + PANEL, WIDTH - RIGHT, top + PANEL, "#000")
    for number, (name, line) in enumerate(panel.lines.items()):
        colour, dashes = STROKES[number % len(STROKES)]
        points = " ".join(f"{x(at_s):.1f},{y(value):.1f}" for at_s, value in line)
        yield (
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.3"'
            f' stroke-dasharray="{dashes}"/>'
        )
        legend = top + 12 + 17 * number
        begin = WIDTH - RIGHT + 10
        yield _line(begin, legend - 4, begin + 24, legend - 4, colour, dashes, 1.6)
        yield _text(begin + 30, legend, name, "start")


def _title(windows: Sequence[Entry], last_s: float) -> str:
    messages = sum(window["messages"] for window in windows)
    faults = sum(sum(window["faults"].values()) for window in windows)
    bad = sum(window["lost"] + window["twice"] for window in windows)
    return (
        f"{last_s / 3600:.1f} hours, {messages:,} messages, {faults} faults and pauses,"
        f" {bad} lost or twice"
    )


def _ticks(highest: float) -> list[float]:
    step = _step(highest or 1.0, 4)
    return [step * number for number in range(ceil((highest or 1.0) / step) + 1)]


def _log_ticks(values: Sequence[float]) -> list[float]:
    positive = [value for value in values if value > 0] or [1.0]
    first, last = floor(log10(min(positive))), ceil(log10(max(positive)))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def _step(length: float, parts: int) -> float:
    """A round number that divides the length into at most `parts` parts."""
    power = 10.0 ** floor(log10(length / parts))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor * parts >= length)


def _line(
    x1: float, y1: float, x2: float, y2: float, colour: str, dashes: str = "", width: float = 1
) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"'
        f' stroke-width="{width}" stroke-dasharray="{dashes}"/>'
    )


def _text(x: float, y: float, text: str, anchor: str, size: int = 11) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(text)}</text>"
    )
