"""The page of a load test, or of several side by side: one file, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from sam_pipeline.publisher.load_test.figures import TOOL
from sam_pipeline.publisher.load_test.report.chart import svg
from sam_pipeline.publisher.load_test.report.plots import LoadRun, PlotFigure, figures
from sam_pipeline.publisher.load_test.report.table import COLUMNS, cells, ms_text
from sam_pipeline.schema.program.wording import grouped

STYLE = """\
:root{--ink:#1b1b1b;--soft:#595959;--line:#c9c9c9}
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
.panels{display:grid;gap:10px 18px}
.plot{width:100%;height:auto;display:block}
.plot text{font-family:inherit;fill:var(--ink)}
.plot .title{font-size:14px;font-weight:700}
.plot .label{font-size:12.5px}
.plot .mark{font-size:11.5px;fill:#404040}
.plot text.band{font-size:11.5px;font-style:italic}
.plot .axis{stroke:#404040;fill:none}
.plot .grid{stroke:#dcdcdc;fill:none}
.plot rect.band{fill:#ececec}
p.legend{display:inline;font-weight:700;font-size:13px;margin-right:10px}
ul.legend{display:inline-flex;flex-wrap:wrap;gap:2px 18px;list-style:none;margin:0 26px 0 0;
padding:0;font-size:13px}
ul.legend svg{vertical-align:-2px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:12px;margin:8px 0;font-variant-numeric:tabular-nums}
th,td{padding:3px 6px;text-align:right;border-bottom:1px solid #e4e4e4}
th{border-bottom:1.5px solid #404040;vertical-align:bottom}
th.text,td.text{text-align:left}
.bad{font-weight:700;text-decoration:underline}
@media (max-width:700px){.panels{grid-template-columns:1fr!important}body{padding:16px}}
@media print{@page{size:A4;margin:14mm}body{max-width:none;padding:0;font-size:10pt}
h1{font-size:18pt}h2{font-size:13pt;margin-top:16pt}h3{font-size:11pt;margin-top:12pt}
.scroll{overflow:visible}table{font-size:7pt}th,td{padding:1pt 3pt}
.plot,tr{break-inside:avoid}h2,h3,.soft,.keys{break-after:avoid}thead{display:table-header-group}}
"""

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


def page(runs: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> str:
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
    yield f'<div class=panels style="{_columns(len(runs))}">{summaries}</div>'
    for figure in figures(runs):
        yield _drawn(figure, len(runs))
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
    delivered = sum(one["delivered"] for one in run.documents)
    lost, late = (sum(one[name] for one in run.documents) for name in ("lost", "late"))
    duplicates = sum(one["duplicates"] for one in run.documents)
    facts = {
        "Broker": f"{first['server']} at {first['broker']}",
        "Measured": f"{first['started_at']} to {last['started_at']}, {len(run.documents)} cells",
        "Machine": f"{machine['processors']} processors, {machine['memory_mb'] / 1000:.0f} GB,"
        f" {machine['system']}, Python {machine['python']}",
        "Messages": f"{grouped(delivered)} delivered, {grouped(lost)} lost, {grouped(late)} late,"
        f" {grouped(duplicates)} duplicates",
        "The tool": f"took {100 * sum(shares) / len(shares):.0f} % of the processors of its"
        f" machine, and limited {by_tool} of {len(run.documents)} cells",
    }
    if first["to_broker_ms"] is None:
        facts["Times"] = "the broker adds no time of its own, so the lag is known only as a whole"
    rows = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts.items())
    heading = f"<h2>{escape(run.name)}</h2>" if is_named else ""
    return f"<div>{heading}<dl class=facts>{rows}</dl></div>"


def _drawn(figure: PlotFigure, runs: int) -> str:
    panels = "".join(svg(panel) for row in figure.rows for panel in row)
    return (
        f"<section class=figure><h2>{escape(figure.title)}</h2>"
        f"<p class=soft>{escape(figure.caption)}</p><div class=keys>{figure.legend}</div>"
        f'<div class=panels style="{_columns(runs if runs > 1 else 2)}">{panels}</div></section>'
    )


def _columns(count: int) -> str:
    return f"grid-template-columns:repeat({count},minmax(0,1fr))"


def _table(run: LoadRun, is_named: bool) -> Iterator[str]:
    yield f"<h2>All cells{f' of {escape(run.name)}' if is_named else ''}</h2>"
    yield "<div class=scroll><table><thead><tr>"
    titles = [*(title for title, _ in COLUMNS), *PARTS]
    classes = [" class=text" if title in TEXT_COLUMNS else "" for title in titles]
    for title, kind in zip(titles, classes):
        yield f"<th{kind}>{escape(HEADINGS.get(title, title))}</th>"
    yield "</tr></thead><tbody>"
    for document in run.documents:
        row = []
        parts = [(document[key] or {}).get("median") for key in PARTS.values()]
        texts = [*cells(document), *map(ms_text, parts)]
        for title, kind, text in zip(titles, classes, texts):
            is_bad = title in ("lost", "twice") and text != "0"
            shown = f"<span class=bad>{escape(text)}</span>" if is_bad else escape(text)
            row.append(f"<td{kind}>{shown}</td>")
        yield f"<tr>{''.join(row)}</tr>"
    yield "</tbody></table></div>"
    notes = [
        f"<li>{escape(named)}: {what}"
        for document in run.documents
        for named, what in _notes(document)
    ]
    if notes:
        yield f"<h3>Notes on these lines</h3><ul>{''.join(notes)}</ul>"


def _notes(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What went wrong in a cell, and which messages were lost or came twice."""
    name = f"line {document['number']}"
    verbs = {"problems": "problems", "lost_ids": "lost", "duplicate_ids": "arrived again"}
    for key, verb in verbs.items():
        if document[key]:
            yield name, f"{verb}: {escape('; '.join(document[key]))}"
