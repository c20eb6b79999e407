"""The pictures of docs/scale.md, and the figures of its tables: `python -m tests.simulation plots`.

Lines differ by their dashes and markers, so that they differ in black and white too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tests.simulation.costs import Measured, MeasuredKind
from tests.simulation.law import Law
from tests.simulation.one_shot import ONE_SHOT, SPOOLED, one_shot_costs
from tests.simulation.plan import BROKER_CORES
from tests.simulation.results import NAMES, RESULTS
from tests.simulation.scenarios import AWAY_S, CUT_OFF_S, LOST_S, RATE, SCENARIOS, Outcome
from tests.simulation.validation import RATE_BOUND, Comparison, validate

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
STYLES: Sequence[Mapping[str, Any]] = (
    {"color": "black", "linestyle": "-"},
    {"color": "#0072b2", "linestyle": "--"},
    {"color": "#d55e00", "linestyle": "-."},
    {"color": "#555555", "linestyle": ":"},
)
MARKERS = "osD^"
SETTINGS: Any = {
    "svg.hashsalt": "scale",  # or each drawing has other ids
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans, sans-serif",
    "font.size": 10,
    "axes.grid": True,
    "grid.color": "#cccccc",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
MINUTE, HOUR = 60.0, 3600.0


def draw_all(measured: Measured, kind: MeasuredKind) -> None:
    """Run everything, and write pictures and figures."""
    rows = validate(measured)
    draw_validation(rows)
    draw_law(measured)
    draw_one_shot(measured)
    outcomes = {name: scenario(kind) for name, scenario in SCENARIOS.items()}
    draw_broker_lost(outcomes["broker-lost"])
    draw_away(outcomes["database-away"], outcomes["small-disks"])
    draw_cut_off(outcomes["cut-off"], outcomes["cut-off-default-spool"])
    document = {
        "measured_at": measured.document["measured_at"],
        "broker": kind.name,
        "validation": [[row.kind, row.run, row.figure, *rounded(row)] for row in rows],
        "scenarios": {
            name: {figure: float(f"{value:.4g}") for figure, value in outcome.figures.items()}
            for name, outcome in outcomes.items()
        },
    }
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    print(RESULTS)


def rounded(row: Comparison) -> Sequence[float]:
    return [float(f"{value:.4g}") for value in (row.measured, row.simulated)]


@contextmanager
def picture(name: str, columns: int = 1, height: float = 3.6) -> Iterator[Sequence[Axes]]:
    """Axes to draw on, written as SVG at the end of the block."""
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(8.5, height), layout="constrained")
        axes = np.atleast_1d(figure.subplots(1, columns))
        yield list(axes)
        labelled = [axis.get_legend_handles_labels() for axis in axes]
        lines = {
            label: line
            for lines, labels in labelled
            for line, label in zip(lines, labels, strict=True)
        }
        figure.legend(lines.values(), lines, loc="outside upper center", ncols=4, fontsize=9)
        path = PICTURES / f"scale-{name}.svg"
        figure.savefig(path, metadata={"Date": None})
    print(f"{path}: {path.stat().st_size} bytes")


def draw_validation(rows: Sequence[Comparison]) -> None:
    """Measured and simulated rates of all cells, in pairs."""
    kinds = list(dict.fromkeys(row.kind for row in rows))
    with picture("validation", len(kinds), 3.2) as axes:
        for axis, kind in zip(axes, kinds, strict=True):
            own = [row for row in rows if row.kind == kind and row.figure == "messages/s"]
            at = np.arange(len(own))
            measured = [row.measured for row in own]
            axis.bar(
                at,
                measured,
                0.6,
                yerr=[RATE_BOUND * value for value in measured],
                color="#cccccc",
                ecolor="#666666",
                capsize=3,
                label="measured, and 15 % more or less",
            )
            simulated = [row.simulated for row in own]
            axis.plot(at, simulated, "D", color="black", markersize=5, label="model")
            axis.set_title(NAMES[kind])
            axis.set_xticks(at, [row.run.replace(" x ", "x") for row in own], rotation=90)
            axis.set_xlabel("brokers x consumer processes")
            axis.yaxis.set_major_formatter(THOUSANDS)
            axis.grid(axis="x", visible=False)
        axes[0].set_ylabel("messages/s")


def draw_law(measured: Measured) -> None:
    """Rates over cores, of each component on a machine of its own."""
    cores = np.array([1, 2, 4, 8, 16, 32])
    kinds = measured.kinds()
    with picture("law", len(kinds), 3.6) as axes:
        for axis, kind in zip(axes, kinds, strict=True):
            law: Law = kind.law
            parts = {**law.components(), "all on one machine": None}
            for style, marker, (name, part) in zip(STYLES, MARKERS, parts.items(), strict=True):
                rates = [
                    part.rate(count) if part else law.on_one_machine(int(count))[0]
                    for count in cores
                ]
                axis.plot(cores, rates, marker=marker, markersize=4, label=name, **style)
            axis.axhline(RATE, color="black", linewidth=0.8, linestyle=(0, (1, 3)))
            axis.axvspan(cores[0], measured.cores, color="#eeeeee", zorder=0)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.set_xticks(cores, [str(count) for count in cores])
            axis.set_ylim(2e3, 3e6)
            axis.yaxis.set_major_formatter(THOUSANDS)
            axis.set_title(NAMES[kind.name])
            axis.set_xlabel("cores of the machine")
        axes[0].set_ylabel("messages/s at most")
        axes[-1].annotate("100,000/s", (1, RATE), xytext=(1.05, RATE * 1.1), fontsize=8)
        axes[-1].annotate("measured here", (1, 2.3e3), xytext=(1.02, 2.3e3), fontsize=7)


def draw_one_shot(measured: Measured) -> None:
    """Cores of a broker over results per second: a session each, or spooled and drained."""
    rates = np.geomspace(10, 20_000, 40)
    kinds = measured.kinds()
    with picture("one-shot", len(kinds), 3.4) as axes:
        for axis, kind in zip(axes, kinds, strict=True):
            costs = one_shot_costs(kind)
            for style, name in zip(STYLES, (ONE_SHOT, SPOOLED), strict=False):
                cores = rates * costs.broker_us[name] / 1e6
                axis.plot(rates, cores, label=name, **style)
            axis.axhline(BROKER_CORES, color="black", linewidth=0.8, linestyle=(0, (1, 3)))
            axis.axvline(costs.limit, color="#999999", linewidth=0.8)
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.set_ylim(1e-3, 100)
            axis.set_title(NAMES[kind.name])
            axis.set_xlabel("results/s")
            axis.xaxis.set_major_formatter(THOUSANDS)
            axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.annotate("8 cores", (10, 8), xytext=(11, 9.5), fontsize=8)
            axis.annotate(
                "accepted here", (costs.limit, 1e-3), xytext=(costs.limit * 1.1, 1.3e-3), fontsize=8
            )
        axes[0].set_ylabel("cores of the broker")


def draw_broker_lost(outcome: Outcome) -> None:
    minutes = [moment.at / MINUTE for moment in outcome.moments]
    with picture("broker-lost", 2) as (left, right):
        rates = rates_of(outcome)
        left.plot(minutes[1:], rates, label="rows committed", **STYLES[0])
        left.set_ylabel("rows/s")
        left.set_ylim(0, 1.2 * max(rates))
        left.yaxis.set_major_formatter(THOUSANDS)
        count = len(outcome.moments[0].backlogs)
        lost = [moment.backlogs[0] for moment in outcome.moments]
        others = [sum(moment.backlogs[1:]) / (count - 1) for moment in outcome.moments]
        right.plot(minutes, lost, label="at the lost broker", **STYLES[2])
        right.plot(minutes, others, label="at another broker, on average", **STYLES[0])
        right.set_ylabel("messages that wait")
        right.set_ylim(0, 1.2 * max(lost + others))
        right.yaxis.set_major_formatter(THOUSANDS)
        for axis in (left, right):
            span(axis, LOST_S, MINUTE, "the broker is lost")
            axis.set_xlabel("minutes")


def draw_away(large: Outcome, small: Outcome) -> None:
    with picture("database-away", 2) as axes:
        titles = (
            f"{large.figures['disk_gb']:.0f} GB of disk for messages at each broker",
            f"{small.figures['disk_gb']:.1f} GB: publishers wait, then they spool",
        )
        for axis, outcome, title in zip(axes, (large, small), titles, strict=True):
            minutes = [moment.at / MINUTE for moment in outcome.moments]
            millions = 1e6
            backlog = [moment.backlog / millions for moment in outcome.moments]
            spooled = [moment.spooled / millions for moment in outcome.moments]
            axis.plot(minutes, backlog, label="at the brokers", **STYLES[0])
            axis.plot(minutes, spooled, label="in spools", **STYLES[2])
            span(axis, AWAY_S, MINUTE, "database away")
            axis.set_title(title, fontsize=10)
            axis.set_xlabel("minutes")
            axis.set_ylim(0, 75)
        axes[0].set_ylabel("messages that wait (millions)")


def draw_cut_off(enough: Outcome, default: Outcome) -> None:
    with picture("cut-off", 2) as (left, right):
        for style, name, run in zip(
            STYLES,
            ("200,000 messages each", "100,000 each, the default"),
            (enough, default),
            strict=False,
        ):
            hours = [moment.at / HOUR for moment in run.moments]
            left.plot(hours, [m.spooled / 1e6 for m in run.moments], label=name, **style)
            right.plot(hours, [m.refused / 1e6 for m in run.moments], label=name, **style)
        left.set_ylabel("messages in the spools (millions)")
        right.set_ylabel("results refused with an error (millions)")
        for axis in (left, right):
            span(axis, CUT_OFF_S, HOUR, "site cut off")
            axis.set_xlabel("hours")
            axis.set_ylim(0, 220)


def rates_of(outcome: Outcome) -> Sequence[float]:
    """Rows per second since the moment before, smoothed over three moments."""
    rows = np.array([moment.rows for moment in outcome.moments])
    at = np.array([moment.at for moment in outcome.moments])
    rates = np.diff(rows) / np.diff(at)
    padded = np.pad(rates, 1, mode="edge")
    return list((padded[:-2] + padded[1:-1] + padded[2:]) / 3)


def span(axis: Axes, between_s: tuple[float, float], unit_s: float, title: str) -> None:
    """A grey band between two times."""
    begin, end = (moment / unit_s for moment in between_s)
    axis.axvspan(begin, end, color="#e6e6e6", zorder=0, label=title)


def thousands(value: float, _: Any) -> str:
    return f"{value:,.0f}"


THOUSANDS = FuncFormatter(thousands)
