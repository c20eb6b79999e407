"""The plots of the field's own presentation, from the documents of the cells.

Throughput over consumers for each number of producers, kB/s over payload, lag over consumers and
over time, rates over time while one consumer is slow. All panels of a figure have the same axes, so
that payloads and runs can be compared by eye.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

from sam_pipeline.publisher.load_test.plan import MATRIX, SCENARIOS, TOPIC, size_text
from sam_pipeline.publisher.load_test.report.chart import (
    Axis,
    Band,
    Panel,
    PlotLine,
    axis_for,
    legend,
)
from sam_pipeline.schema.program.wording import grouped, plural

CONSUMERS = "consumers"
SECONDS = "time since the start (s)"
LAG = "lag from sending to arrival (ms)"
RATE = "messages/s"

Document = Mapping[str, Any]
Value = Callable[[Document], Optional[float]]


class LoadRun(NamedTuple):
    """The results of one run; its name is that of its directory."""

    name: str
    documents: Sequence[Document]


class PlotFigure(NamedTuple):
    """Panels with a common legend; if runs are compared, each row has a panel per run."""

    title: str
    caption: str
    legend: str
    rows: Sequence[Sequence[Panel]]


def figures(runs: Sequence[LoadRun]) -> Iterator[PlotFigure]:
    """All figures for which there are results."""
    groups = dict.fromkeys(
        (one["kind"], one["persistent"])
        for run in runs
        for one in run.documents
        if one["scenario"] == MATRIX
    )
    for kind, persistent in groups:
        chosen = [
            LoadRun(
                run.name,
                [
                    one
                    for one in run.documents
                    if (one["scenario"], one["kind"], one["persistent"])
                    == (MATRIX, kind, persistent)
                ],
            )
            for run in runs
        ]
        yield from _matrix(chosen, mode_text(kind, persistent))
    modes = dict.fromkeys(
        (one["scenario"], one["kind"], one["persistent"])
        for run in runs
        for one in run.documents
        if one["scenario"] in SCENARIOS
    )
    for mode in modes:
        yield from _scenario(runs, mode)


def mode_text(kind: str, persistent: bool) -> str:
    if not persistent:
        return f"{kind}, not persistent"
    return f"{kind}, persistent" + (", durable subscriptions" if kind == "topic" else "")


def _matrix(runs: Sequence[LoadRun], mode: str) -> Iterator[PlotFigure]:
    over_consumers = {
        f"Throughput over consumers ({mode})": (
            "received messages/s",
            (
                "All consumers together. On a topic each of them receives every message, so equal"
                " throughput means fewer messages sent."
            ),
            lambda one: one["received_per_s"],
        ),
        f"Throughput of one consumer ({mode})": (
            "messages/s per consumer",
            "The mean over the consumers.",
            lambda one: one["received_per_s_per_consumer"],
        ),
        f"Lag over consumers ({mode})": (
            "99th percentile of the lag (ms)",
            (
                "99 of 100 messages arrived within this time. Producers send as fast as the broker"
                " confirms, so most of it is waiting in the broker."
            ),
            lambda one: one["lag_ms"] and one["lag_ms"]["p99"],
        ),
    }
    for title, (label, caption, value) in over_consumers.items():
        yield _over_consumers(runs, title, label, caption, value)
    yield _over_payload(runs, mode)
    yield _lag_over_time(runs, mode)


def _over_consumers(
    runs: Sequence[LoadRun], title: str, label: str, caption: str, value: Value
) -> PlotFigure:
    """A panel per payload, a line per number of producers."""
    documents = [one for run in runs for one in run.documents]
    counts = _distinct(documents, "producers")
    x = _count_axis(_distinct(documents, "consumers"))
    y = axis_for(label, [value(one) or 0 for one in documents], is_log=True)
    rows = []
    for size in _distinct(documents, "size_bytes"):
        row = []
        for run in runs:
            lines = []
            for style, producers in enumerate(counts):
                points = [
                    (one["consumers"], value(one) or None)
                    for one in run.documents
                    if (one["size_bytes"], one["producers"]) == (size, producers)
                ]
                lines.append(PlotLine(f"{producers} producers", sorted(points), style))
            row.append(Panel(_named(size_text(size), run, runs), x, y, lines))
        rows.append(row)
    names = [(str(producers), style) for style, producers in enumerate(counts)]
    return PlotFigure(title, caption, legend(names, "Producers:"), rows)


def _over_payload(runs: Sequence[LoadRun], mode: str) -> PlotFigure:
    """kB/s over the payload, a line per number of consumers, for the most producers."""
    documents = [one for run in runs for one in run.documents if one["size_bytes"]]
    most = max((one["producers"] for one in documents), default=1)
    documents = [one for one in documents if one["producers"] == most]
    counts = _distinct(documents, "consumers")
    sizes = _distinct(documents, "size_bytes") or [1]
    x = Axis("payload (bytes)", sizes[0] * 0.8, sizes[-1] * 1.25, True, sizes)
    rates = [one["payload_kb_per_s"] for one in documents]
    y = axis_for("received payload (kB/s)", rates, is_log=True)
    row = []
    for run in runs:
        lines = []
        for style, consumers in enumerate(counts):
            points = [
                (one["size_bytes"], one["payload_kb_per_s"] or None)
                for one in run.documents
                if one["size_bytes"] and (one["consumers"], one["producers"]) == (consumers, most)
            ]
            lines.append(PlotLine(f"{consumers} consumers", sorted(points), style))
        row.append(Panel(_named(f"{most} producers", run, runs), x, y, lines))
    names = [(str(consumers), style) for style, consumers in enumerate(counts)]
    caption = "Payload that all consumers received together, without headers."
    key = legend(names, "Consumers:")
    return PlotFigure(f"Bytes over payload ({mode})", caption, key, [row])


def _lag_over_time(runs: Sequence[LoadRun], mode: str) -> PlotFigure:
    """A panel per payload, a line per number of consumers, for the most producers."""
    everything = [one for run in runs for one in run.documents]
    most = max((one["producers"] for one in everything), default=1)
    documents = [one for one in everything if one["producers"] == most]
    counts = _distinct(documents, "consumers")
    times = [time for one in documents for time, _ in _over_time(one, LAG_MEDIAN)]
    x = axis_for(SECONDS, times, is_log=True)  # some cells take a hundred times longer
    lags = [lag or 0 for one in documents for _, lag in _over_time(one, LAG_MEDIAN)]
    y = axis_for("median lag (ms)", lags, is_log=True)
    rows = []
    for size in _distinct(documents, "size_bytes"):
        row = []
        for run in runs:
            lines = [
                PlotLine(f"{consumers} consumers", _over_time(one, LAG_MEDIAN), style)
                for style, consumers in enumerate(counts)
                for one in run.documents
                if (one["size_bytes"], one["producers"], one["consumers"])
                == (size, most, consumers)
            ]
            row.append(
                Panel(_named(f"{size_text(size)}, {most} producers", run, runs), x, y, lines)
            )
        rows.append(row)
    names = [(str(consumers), style) for style, consumers in enumerate(counts)]
    caption = (
        "The median lag of the messages that arrived in each interval. A line that rises means that"
        " the broker takes messages faster than it delivers them; it ends with the last message."
    )
    return PlotFigure(f"Lag over time ({mode})", caption, legend(names, "Consumers:"), rows)


SENT, RECEIVED, OTHERS, SLOW = "sent_per_s", "received_per_s", "others_per_s", "slow_per_s"
LAG_MEDIAN, LAG_P99, LAG_MAXIMUM = "lag_median_ms", "lag_p99_ms", "lag_maximum_ms"


def _scenario(runs: Sequence[LoadRun], mode: tuple[str, str, bool]) -> Iterator[PlotFigure]:
    """Rates over time, and below them the lag over time."""
    found = [
        (run, one)
        for run in runs
        for one in run.documents
        if (one["scenario"], one["kind"], one["persistent"]) == mode
    ]
    scenario, kind, persistent = mode
    documents = [one for _, one in found]
    is_slow = SLOW in documents[0]["series"]
    rates = {SENT: "all producers together"}
    if is_slow:
        rates.update({OTHERS: "each of the other consumers", SLOW: "the slow consumer"})
    else:
        rates[RECEIVED] = "each consumer" if kind == TOPIC else "all consumers together"
    lags = {LAG_MEDIAN: "median", LAG_P99: "99th percentile", LAG_MAXIMUM: "maximum"}
    names = [*rates, *lags]
    times = [time for one in documents for name in names for time, _ in _over_time(one, name)]
    x = axis_for(SECONDS, times)
    figures = (("rates", rates, RATE, False), ("lag", lags, LAG, True))
    panels = []
    keys = []
    for what, series, label, is_log in figures:
        values = [v or 0 for one in documents for name in series for _, v in _over_time(one, name)]
        y = axis_for(label, values, is_log)
        row = []
        for run, one in found:
            lines = [
                PlotLine(text, _over_time(one, name), style)
                for style, (name, text) in enumerate(series.items())
            ]
            band = None
            if is_slow:
                low, high = one["series"]["slow_between_s"]
                band = Band(low, high, "one consumer is slow")
            row.append(Panel(_named(what.capitalize(), run, runs), x, y, lines, band))
        panels.append(row)
        entries = [(text, style) for style, text in enumerate(series.values())]
        keys.append(legend(entries, f"{what.capitalize()}:"))
    if len(runs) == 1:
        panels = [[panel for row in panels for panel in row]]
    one = documents[0]
    title = f"{scenario.capitalize()} ({mode_text(kind, persistent)})".replace("-", " ", 1)
    counts = [plural(one["producers"], "producer"), plural(one["consumers"], "consumer")]
    caption = ", ".join([*counts, size_text(one["size_bytes"])])
    if one["rate_wanted_per_s"]:
        caption += f", {grouped(round(one['rate_wanted_per_s']))} messages/s wanted in total"
    if is_slow:
        caption += (
            ". In the shaded time one consumer takes 50 messages/s. Flow control shows in the rate"
            " of the producers: it falls if the broker makes them wait, and stays if the broker"
            " stores the messages instead"
        )
    yield PlotFigure(title, f"{caption}.", "<br>".join(keys), panels)


def _over_time(one: Document, name: str) -> list[tuple[float, Optional[float]]]:
    """A series of a cell, up to its last message; a lag of 0 cannot be drawn."""
    values = list(one["series"].get(name, ()))
    while values and not values[-1]:
        values.pop()
    if name == RECEIVED and one["kind"] == TOPIC:
        values = [value / one["consumers"] for value in values]
    interval_s = one["series"]["interval_s"]
    is_lag = name.startswith("lag")
    return [
        (round((at + 0.5) * interval_s, 3), (value or None) if is_lag else value)
        for at, value in enumerate(values)
    ]


def _distinct(documents: Iterable[Document], key: str) -> list[int]:
    return sorted({one[key] for one in documents})


def _count_axis(counts: Sequence[int]) -> Axis:
    low, high = (counts[0], counts[-1]) if counts else (1, 1)
    return Axis(CONSUMERS, low * 0.85, high * 1.18, True, counts)


def _named(text: str, run: LoadRun, runs: Sequence[LoadRun]) -> str:
    """The title of a panel: with the name of the run, if there are several."""
    return f"{run.name}: {text}" if len(runs) > 1 else text
