"""The page of a load test, or of several side by side: one file, nothing from elsewhere.

Its plots are those of the field's own presentation: throughput over consumers for each number of
producers, kB/s over payload, lag over consumers and over time, rates over time while one consumer
is slow. All panels of a figure have the same axes, so that payloads and runs can be compared by
eye. Matplotlib (extra `load-test`) draws them; a line is known by its marker and dashes as well as
by its colour, so a black and white print shows all that the screen shows.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import cycle
from operator import itemgetter
from typing import Any, Callable, NamedTuple, Optional

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, NullFormatter, NullLocator

from sam_pipeline.publisher.load_test.figures import COLUMNS, TOOL, ms_text
from sam_pipeline.publisher.load_test.plan import MATRIX, SCENARIOS, TOPIC, size_text
from sam_pipeline.schema.program.wording import grouped, plural

Document = Mapping[str, Any]
Value = Callable[[Document], Optional[float]]
Points = Sequence[tuple[float, Optional[float]]]

STYLE = """\
:root{--ink:#1b1b1b;--soft:#595959}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1120px;padding:24px 28px 60px;color:var(--ink);background:#fff;
font:15px/1.5 "Helvetica Neue",Helvetica,Arial,"Liberation Sans",sans-serif}
h1{font-size:26px;line-height:1.2;margin:0 0 4px}
h2{font-size:19px;margin:38px 0 6px}
h3{font-size:16px;margin:30px 0 2px}
p{margin:4px 0 8px;max-width:75ch}
.soft{color:var(--soft)}
.facts{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:12px 0}
.facts dt{color:var(--soft)}.facts dd{margin:0}
.runs{display:grid;gap:10px 18px}
.plot svg{width:100%;height:auto;display:block}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:12px;margin:8px 0;font-variant-numeric:tabular-nums}
th,td{padding:3px 6px;text-align:right;border-bottom:1px solid #e4e4e4}
th{border-bottom:1.5px solid #404040;vertical-align:bottom}
th.text,td.text{text-align:left}
.bad{font-weight:700;text-decoration:underline}
@media print{@page{size:A4;margin:14mm}body{max-width:none;padding:0;font-size:10pt}
h1{font-size:18pt}h2{font-size:13pt;margin-top:16pt}h3{font-size:11pt;margin-top:12pt}
.scroll{overflow:visible}table{font-size:7pt}th,td{padding:1pt 3pt}
.plot,tr{break-inside:avoid}h2,h3,.soft{break-after:avoid}thead{display:table-header-group}}
"""

LINES = (
    ("#1b1b1b", "-", "o"),
    ("#0063a6", "--", "s"),
    ("#c2410c", ":", "^"),
    ("#00735c", "-.", "D"),
    ("#8b3a86", "--", "x"),
    ("#7a5c00", "-", "v"),
    ("#5a5a5a", ":", "P"),
)
"""Colours that people with any vision distinguish, dark enough for a print; dashes and markers."""
MAX_MARKERS = 12
"""A line with more points has a marker at every nth only."""
LOOK: Any = {"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 8, "axes.grid": True}
PANEL_INCHES = (4.6, 2.8)

SECONDS = "time since the start (s)"
SENT, RECEIVED, OTHERS, SLOW = "sent_per_s", "received_per_s", "others_per_s", "slow_per_s"
LAG_MEDIAN, LAG_P99, LAG_MAXIMUM = "lag_median_ms", "lag_p99_ms", "lag_maximum_ms"

HEADINGS = {"prod": "producers", "cons": "consumers", "twice": "duplicates", "limit": "limited by"}
PARTS = {"to broker ms": "to_broker_ms", "from broker ms": "from_broker_ms"}
TEXT_COLUMNS = ("scenario", "stored", "kind", "limit")
NOTES = {
    "sent/s": "messages that the broker confirmed, until the last receipt",
    "received/s": "messages that all consumers received, until the last one arrived",
    "kB/s": "payload of the received messages, without headers; 1 kB is 1000 bytes",
    "median, p99, max": "of the lag, the time from sending to arrival, in ms; the maximum is exact",
    "to, from broker": "medians of the parts of the lag before and after the time that the broker"
    " states; - if it states none",
    "lost": "messages that the broker confirmed and that did not arrive, by id; +N were late: still"
    " on their way when the time was over",
    "duplicates": "arrivals of messages that had arrived before, by id",
    "limited by": "processors: those of this machine were all busy, with the broker, the tool or"
    " other programs; tool: one of its processes was busy, so the broker may be faster; rate: the"
    " wanted one was reached; broker: none of these",
}


class LoadRun(NamedTuple):
    """The results of one run; its name is that of its directory."""

    name: str
    documents: Sequence[Document]


class Panel(NamedTuple):
    """One plot: its lines by name, and the time that is marked behind them."""

    title: str
    lines: Sequence[tuple[str, Points]]
    slow_s: Optional[tuple[float, float]] = None


class Axes(NamedTuple):
    """What the axes of all panels of a figure show; `ticks` of the x-axis, else round numbers."""

    x: str
    y: str
    x_log: bool = True
    y_log: bool = True
    ticks: Sequence[int] = ()


def page(runs: Sequence[tuple[str, Sequence[Document]]]) -> str:
    """The page of one run, or of several side by side; each has a name and its documents."""
    chosen = [LoadRun(name, documents) for name, documents in runs]
    return "".join(f"{part}\n" for part in _parts(chosen))


def _parts(runs: Sequence[LoadRun]) -> Iterator[str]:
    *first, last = (run.name for run in runs)
    names = f"{', '.join(first)} and {last}" if first else last
    title = f"Load test: {names}" if len(runs) == 1 else f"Load tests compared: {names}"
    yield '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1">'
    yield f"<title>{escape(title)}</title><style>\n{STYLE}</style></head><body>"
    yield f"<h1>{escape(title)}</h1>"
    summaries = "".join(_summary(run, len(runs) > 1) for run in runs)
    columns = f"grid-template-columns:repeat({len(runs)},minmax(0,1fr))"
    yield f'<div class=runs style="{columns}">{summaries}</div>'
    mode_of = itemgetter("scenario", "kind", "persistent")
    modes = dict.fromkeys(mode_of(one) for run in runs for one in run.documents)
    for mode in modes:
        chosen = [
            LoadRun(run.name, [one for one in run.documents if mode_of(one) == mode])
            for run in runs
        ]
        if mode[0] == MATRIX:
            yield from _matrix(chosen, mode_text(*mode[1:]))
        elif mode[0] in SCENARIOS:
            yield from _scenario(chosen, mode)
    for run in runs:
        yield from _table(run, len(runs) > 1)
    yield "<h2>What the columns mean</h2><dl class=facts>"
    yield from (f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in NOTES.items())
    yield "</dl></body></html>"


def _summary(run: LoadRun, is_named: bool) -> str:
    """What was measured, where, and whether all messages arrived."""
    if not run.documents:
        return f"<p>{escape(run.name)}: no cell was measured</p>"
    first, last = run.documents[0], run.documents[-1]
    machine = first["machine"]
    by_tool = sum(one["processor"]["limited_by"] == TOOL for one in run.documents)
    shares = [one["processor"]["tool"] for one in run.documents]
    names = ("delivered", "lost", "late", "duplicates")
    totals = (f"{grouped(sum(one[name] for one in run.documents))} {name}" for name in names)
    facts = {
        "Broker": f"{first['server']} at {first['broker']}",
        "Measured": f"{first['started_at']} to {last['started_at']}, {len(run.documents)} cells",
        "Machine": f"{machine['processors']} processors, {machine['memory_mb'] / 1000:.0f} GB,"
        f" {machine['system']}, Python {machine['python']}",
        "Messages": ", ".join(totals),
        "The tool": f"took {100 * sum(shares) / len(shares):.0f} % of the processors of its"
        f" machine, and limited {by_tool} of {len(run.documents)} cells",
    }
    if first["to_broker_ms"] is None:
        facts["Times"] = "the broker adds no time of its own, so the lag is known only as a whole"
    rows = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts.items())
    heading = f"<h2>{escape(run.name)}</h2>" if is_named else ""
    return f"<div>{heading}<dl class=facts>{rows}</dl></div>"


def mode_text(kind: str, persistent: bool) -> str:
    if not persistent:
        return f"{kind}, not persistent"
    return f"{kind}, persistent" + (", durable subscriptions" if kind == TOPIC else "")


OVER_CONSUMERS: Sequence[tuple[str, str, str, Value]] = (
    (
        "Throughput over consumers",
        "received messages/s",
        "All consumers together; on a topic, equal throughput means fewer messages sent.",
        itemgetter("received_per_s"),
    ),
    (
        "Throughput of one consumer",
        "messages/s per consumer",
        "The mean over the consumers.",
        itemgetter("received_per_s_per_consumer"),
    ),
    (
        "Lag over consumers",
        "99th percentile of the lag (ms)",
        "99 of 100 messages arrived within this time, most of it spent waiting in the broker.",
        lambda one: one["lag_ms"] and one["lag_ms"]["p99"],
    ),
)
"""Plots of the matrix: title, label, caption and value."""


def _matrix(runs: Sequence[LoadRun], mode: str) -> Iterator[str]:
    producers, consumers, sizes = (
        sorted({one[key] for run in runs for one in run.documents})
        for key in ("producers", "consumers", "size_bytes")
    )
    most = max(producers)

    def over_consumers(run: LoadRun, size: int, value: Value) -> Panel:
        matches = [(n, _where(run, size_bytes=size, producers=n)) for n in producers]
        lines = [
            (plural(n, "producer"), _points(cells, "consumers", value)) for n, cells in matches
        ]
        return Panel(size_text(size), lines)

    for title, label, caption, value in OVER_CONSUMERS:
        rows = [[over_consumers(run, size, value) for run in runs] for size in sizes]
        axes = Axes("consumers", label, ticks=consumers)
        yield _drawn(f"{title} ({mode})", caption, rows, axes, runs)

    def over_payload(run: LoadRun) -> Panel:
        value = itemgetter("payload_kb_per_s")
        matches = [(n, _where(run, consumers=n, producers=most)) for n in consumers]
        lines = [
            (plural(n, "consumer"), _points(cells, "size_bytes", value)) for n, cells in matches
        ]
        return Panel(plural(most, "producer"), lines)

    caption = "Payload that all consumers received together, without headers."
    ticks = [size for size in sizes if size]
    axes = Axes("payload (bytes)", "received payload (kB/s)", ticks=ticks)
    yield _drawn(
        f"Bytes over payload ({mode})", caption, [list(map(over_payload, runs))], axes, runs
    )

    def over_time(run: LoadRun, size: int) -> Panel:
        cells = _where(run, size_bytes=size, producers=most)
        lines = [
            (plural(one["consumers"], "consumer"), _over_time(one, LAG_MEDIAN)) for one in cells
        ]
        return Panel(f"{size_text(size)}, {plural(most, 'producer')}", lines)

    caption = (
        "The median lag of the messages that arrived in each interval. A line that rises means that"
        " the broker takes messages faster than it delivers them; it ends with the last message."
    )
    rows = [[over_time(run, size) for run in runs] for size in sizes]
    yield _drawn(f"Lag over time ({mode})", caption, rows, Axes(SECONDS, "median lag (ms)"), runs)


def _scenario(runs: Sequence[LoadRun], mode: tuple[str, str, bool]) -> Iterator[str]:
    """Rates over time, and below them the lag over time."""
    scenario, kind, persistent = mode
    runs = [run for run in runs if run.documents]
    one = runs[0].documents[0]
    is_slow = SLOW in one["series"]
    rates = {SENT: "all producers together"}
    if is_slow:
        rates |= {OTHERS: "each of the other consumers", SLOW: "the slow consumer"}
    else:
        rates[RECEIVED] = "each consumer" if kind == TOPIC else "all consumers together"
    lags = {LAG_MEDIAN: "median", LAG_P99: "99th percentile", LAG_MAXIMUM: "maximum"}
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
    for heading, series, label in ((title, rates, "messages/s"), ("", lags, "lag (ms)")):
        row = []
        for run in runs:
            document = run.documents[0]
            lines = [(text, _over_time(document, name)) for name, text in series.items()]
            between = tuple(document["series"]["slow_between_s"]) if is_slow else None
            row.append(Panel("Lag" if series is lags else "Rates", lines, between))
        axes = Axes(SECONDS, label, x_log=False, y_log=series is lags)
        yield _drawn(heading, f"{caption}." if heading else "", [row], axes, runs)


def _drawn(
    title: str, caption: str, rows: Sequence[Sequence[Panel]], axes: Axes, runs: Sequence[LoadRun]
) -> str:
    """A section of the page: panels with the same axes and a common legend, a column per run."""
    columns = len(runs)
    if columns == 1:  # there is room for two in a row
        panels = [row[0] for row in rows]
        columns = min(2, len(panels))
        rows = [panels[at : at + columns] for at in range(0, len(panels), columns)]
    with rc_context(LOOK):
        width, height = PANEL_INCHES
        size = (max(2, columns) * width, len(rows) * height)
        figure = Figure(size, layout="constrained")
        grid = figure.subplots(len(rows), columns, sharex=True, sharey=True, squeeze=False)
        for row, plots in zip(rows, grid):
            for run, panel, plot in zip(cycle(runs), row, plots):
                named = f"{run.name}: {panel.title}" if len(runs) > 1 else panel.title
                # What is between two `$` is mathematics for matplotlib.
                plot.set_title(named.replace("$", r"\$"), loc="left", weight="bold")
                plot.set(xlabel=axes.x, ylabel=axes.y)
                plot.tick_params(labelbottom=True, labelleft=True)
                for (name, points), (colour, dashes, marker) in zip(panel.lines, cycle(LINES)):
                    plot.plot(
                        [x for x, _ in points],
                        [math.nan if y is None else y for _, y in points],
                        color=colour,
                        linestyle=dashes,
                        marker=marker,
                        markersize=4,
                        markevery=max(1, math.ceil(len(points) / MAX_MARKERS)),
                        label=name,
                    )
                if panel.slow_s:
                    plot.axvspan(*panel.slow_s, color="#ececec", label="one consumer is slow")
            for plot in plots[len(row) :]:
                plot.remove()
        first = grid[0][0]
        if axes.y_log:
            first.set_yscale("log")
        else:
            first.set_ylim(bottom=0)
        first.yaxis.set_major_formatter(EngFormatter(sep=" "))
        if axes.x_log:
            first.set_xscale("log")
            first.xaxis.set_major_formatter(EngFormatter(sep=" "))
            first.xaxis.set_minor_formatter(NullFormatter())
        if axes.ticks:
            first.set_xticks(axes.ticks, [str(tick) for tick in axes.ticks])
            first.xaxis.set_minor_locator(NullLocator())
        figure.legend(*first.get_legend_handles_labels(), loc="outside upper left", ncols=4)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    heading = f"<h2>{escape(title)}</h2>" if title else ""
    described = f"<p class=soft>{escape(caption)}</p>" if caption else ""
    return (
        f"<section>{heading}{described}<div class=plot>{svg[svg.index('<svg') :]}</div></section>"
    )


def _where(run: LoadRun, **counts: int) -> Sequence[Document]:
    """The cells of a run with these counts."""
    return [one for one in run.documents if all(one[key] == n for key, n in counts.items())]


def _points(documents: Iterable[Document], key: str, value: Value) -> Points:
    """A value over `key`, a point per cell; 0 can't be drawn on a logarithmic axis."""
    return sorted((one[key], value(one) or None) for one in documents if one[key])


def _over_time(one: Document, name: str) -> Points:
    """A series of a cell, up to its last message; a lag of 0 can't be drawn."""
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


def _table(run: LoadRun, is_named: bool) -> Iterator[str]:
    yield f"<h2>All cells{f' of {escape(run.name)}' if is_named else ''}</h2>"
    yield "<div class=scroll><table><thead><tr>"
    titles = [*COLUMNS, *PARTS]
    classes = [" class=text" if title in TEXT_COLUMNS else "" for title in titles]
    for title, kind in zip(titles, classes):
        yield f"<th{kind}>{escape(HEADINGS.get(title, title))}</th>"
    yield "</tr></thead><tbody>"
    notes = []
    verbs = {"problems": "problems", "lost_ids": "lost", "duplicate_ids": "arrived again"}
    for document in run.documents:
        row = []
        parts = [ms_text(document[key], "median") for key in PARTS.values()]
        texts = [*(text(document) for _, text in COLUMNS.values()), *parts]
        for title, kind, text in zip(titles, classes, texts):
            is_bad = title in ("lost", "twice") and text != "0"
            shown = f"<span class=bad>{escape(text)}</span>" if is_bad else escape(text)
            row.append(f"<td{kind}>{shown}</td>")
        yield f"<tr>{''.join(row)}</tr>"
        for key, verb in verbs.items():
            if document[key]:
                text = escape("; ".join(document[key]))
                notes.append(f"<li>line {document['number']}: {verb}: {text}")
    yield "</tbody></table></div>"
    if notes:
        yield f"<h3>Notes on these lines</h3><ul>{''.join(notes)}</ul>"
