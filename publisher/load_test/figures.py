"""From the reports of the processes to the figures of a cell, as one JSON document."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Optional

from sam_pipeline.publisher.errors import PublishUsage
from sam_pipeline.publisher.load_test.conduct import QUIET, CellRun
from sam_pipeline.publisher.load_test.counting import Account, Durations, balance
from sam_pipeline.publisher.load_test.plan import QUEUE, size_text
from sam_pipeline.publisher.load_test.wire import LoadRoute
from sam_pipeline.schema import VERSION
from sam_pipeline.schema.errors import UnreadableInput
from sam_pipeline.schema.times import format_time

Document = dict[str, Any]

TOOL, PROCESSORS, RATE, BROKER = "tool", "processors", "rate", "broker"
"""What limited the throughput of a cell."""
BUSY_PROCESS = 0.9
"""A process of the tool that works for this share of the time may be the limit."""
BUSY_MACHINE = 0.95
REACHED = 0.95
"""The share of the wanted rate that counts as reached."""


def document_of(run: CellRun, route: LoadRoute) -> Document:
    """The figures of a cell; docs/load-test.md explains each of them."""
    cell = run.cell
    sent = {number: one for report in run.sending for number, one in report.sent.items()}
    arrivals = {number: one for report in run.receiving for number, one in report.arrivals.items()}
    account = balance(
        [sent[number] for number in sorted(sent)],
        [arrivals[number] for number in sorted(arrivals)],
        shared=cell.kind == QUEUE,
    )
    sending_s = max(report.last_s for report in run.sending)
    receiving_s = max(report.last_s for report in run.receiving)
    received_per_s = _rate(account.delivered, receiving_s)
    lags: dict[int, Durations] = defaultdict(Durations)
    for report in run.receiving:
        for at, durations in report.lags.items():
            lags[at].add_all(durations)
    received_bytes = sum(report.bytes for report in run.receiving)
    sent_per_s = _rate(account.confirmed, sending_s)
    return {
        "run": route.run,
        "broker": str(route.target.broker),
        "server": run.receiving[0].server,
        "machine": machine(),
        "scenario": cell.scenario,
        "number": run.number,
        "kind": cell.kind,
        "persistent": cell.persistent,
        "producers": cell.producers,
        "consumers": cell.consumers,
        "size_bytes": cell.size_bytes,
        "rate_wanted_per_s": cell.rate,
        "started_at": format_time(datetime.fromtimestamp(int(run.started_at), timezone.utc)),
        "ended_by": run.ended_by,
        "sending_s": round(sending_s, 3),
        "receiving_s": round(receiving_s, 3),
        "sent_per_s": sent_per_s,
        "received_per_s": received_per_s,
        "received_per_s_per_consumer": round(received_per_s / cell.consumers, 1),
        "payload_kb_per_s": round(received_per_s * cell.size_bytes / 1000, 1),
        "wire_kb_per_s": _rate(received_bytes / 1000, receiving_s),
        "lag_ms": _quantiles(lags.values()),
        "to_broker_ms": _quantiles(report.to_broker for report in run.receiving),
        "from_broker_ms": _quantiles(report.from_broker for report in run.receiving),
        **_counts(account, run),
        "processor": _processor(run, sent_per_s),
        "series": _series(run, lags),
        "problems": [one for report in run.reports for one in report.problems],
    }


def machine() -> Document:
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "processors": os.cpu_count(),
        "memory_mb": pages * page_bytes // 1_000_000,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "sam_publish": VERSION,
    }


def _counts(account: Account, run: CellRun) -> Document:
    """The account of the messages; those that still arrive at the end are not lost."""
    counts = account._asdict()
    missing, missing_ids = counts.pop("missing"), counts.pop("missing_ids")
    is_final = run.ended_by == QUIET or not missing
    return {
        **counts,
        "lost": missing if is_final else 0,
        "late": 0 if is_final else missing,
        "lost_ids": missing_ids if is_final else [],
        "foreign": sum(report.foreign for report in run.receiving),
    }


def _processor(run: CellRun, sent_per_s: float) -> Document:
    """How much of the processors the tool took, and the limit."""
    shares = [report.processor_s / report.wall_s for report in run.reports if report.wall_s]
    busiest = max(shares, default=0.0)
    if run.cell.rate and sent_per_s >= run.cell.rate * REACHED:
        limit = RATE
    elif busiest >= BUSY_PROCESS:
        limit = TOOL
    elif run.busy >= BUSY_MACHINE:
        limit = PROCESSORS
    else:
        limit = BROKER
    return {
        "producers_s": round(sum(report.processor_s for report in run.sending), 3),
        "consumers_s": round(sum(report.processor_s for report in run.receiving), 3),
        "busiest_process": round(busiest, 3),
        "tool": round(sum(shares) / (os.cpu_count() or 1), 3),
        "machine": round(run.busy, 3),
        "limited_by": limit,
    }


def _series(run: CellRun, lags: Mapping[int, Durations]) -> Document:
    """Rates and lags over time; each list has an entry per interval of `interval_s`.

    The lag in an interval is that of the messages that arrived in it; None if none did.
    """
    ends = [max(report.by_bin, default=0) for report in run.sending]
    by_consumer = {n: bins for report in run.receiving for n, bins in report.by_bin.items()}
    ends += [max(bins, default=0) for bins in by_consumer.values()]
    intervals = range(max(ends) + 1)

    def rates(bins: Iterable[Mapping[int, int]], share: int = 1) -> list[float]:
        total = sum(map(Counter, bins), Counter[int]())
        return [round(total[at] / run.bin_s / share, 1) for at in intervals]

    quantiles_at = [lags[at].quantiles() if at in lags else None for at in intervals]
    series: Document = {
        "interval_s": run.bin_s,
        "sent_per_s": rates(report.by_bin for report in run.sending),
        "received_per_s": rates(by_consumer.values()),
    }
    if run.cell.has_slow_consumer:
        others = [bins for number, bins in by_consumer.items() if number]
        series["slow_per_s"] = rates([by_consumer[0]])
        series["others_per_s"] = rates(others, max(1, len(others)))
        series["slow_between_s"] = [round(at, 3) for at in run.cell.slow_between()]
    for name in ("median", "p99", "maximum"):
        series[f"lag_{name}_ms"] = [found and found[name] for found in quantiles_at]
    return series


def _quantiles(parts: Iterable[Durations]) -> Optional[Document]:
    together = Durations()
    for part in parts:
        together.add_all(part)
    return together.quantiles()


def _rate(count: float, seconds: float) -> float:
    return round(count / seconds, 1) if seconds else 0.0


NEEDED = ("server", "scenario", "producers", "consumers", "size_bytes", "lag_ms", "series")


def read_results(path: Path) -> list[dict[str, Any]]:
    """The documents of a file of JSON lines.

    Raises:
        UnreadableInput: it can't be read.
        PublishUsage: these are not results of a load test.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UnreadableInput(str(path), error, "nothing was compared") from error
    documents = []
    for number, line in enumerate(lines, 1):
        try:
            document = json.loads(line)
        except ValueError:
            document = None
        if not isinstance(document, dict) or not document.keys() >= set(NEEDED):
            raise PublishUsage(f"{path}:{number}: not a result of sam-publish load-test")
        documents.append(document)
    if not documents:
        raise PublishUsage(f"{path}: no cell was measured")
    return documents


def ms_text(durations: Optional[Mapping[str, float]], name: str) -> str:
    """One of the quantiles; three digits are all that is known."""
    if not durations:
        return "-"
    value = durations[name]
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


COLUMNS: dict[str, tuple[int, Callable[[Mapping[str, Any]], str]]] = {
    "scenario": (12, lambda one: one["scenario"]),
    "prod": (-5, lambda one: str(one["producers"])),
    "cons": (-5, lambda one: str(one["consumers"])),
    "payload": (-7, lambda one: size_text(one["size_bytes"])),
    "stored": (6, lambda one: "yes" if one["persistent"] else "no"),
    "kind": (5, lambda one: one["kind"]),
    "sent/s": (-8, lambda one: f"{one['sent_per_s']:.0f}"),
    "received/s": (-10, lambda one: f"{one['received_per_s']:.0f}"),
    "per consumer": (-12, lambda one: f"{one['received_per_s_per_consumer']:.0f}"),
    "kB/s": (-8, lambda one: f"{one['payload_kb_per_s']:.0f}"),
    "median ms": (-9, lambda one: ms_text(one["lag_ms"], "median")),
    "p99 ms": (-8, lambda one: ms_text(one["lag_ms"], "p99")),
    "max ms": (-8, lambda one: ms_text(one["lag_ms"], "maximum")),
    "lost": (-6, lambda one: str(one["lost"] or (f"+{one['late']}" if one["late"] else 0))),
    "twice": (-6, lambda one: str(one["duplicates"])),
    "limit": (10, lambda one: one["processor"]["limited_by"]),
}
"""The width and the text of each column; a width below 0 aligns to the right."""


def table_heading() -> list[str]:
    return [_line(COLUMNS), "  ".join("-" * abs(width) for width, _ in COLUMNS.values())]


def table_row(document: Mapping[str, Any]) -> str:
    """The line of a cell."""
    return _line(text(document) for _, text in COLUMNS.values())


def _line(texts: Iterable[str]) -> str:
    padded = (
        text.rjust(-width) if width < 0 else text.ljust(width)
        for text, (width, _) in zip(texts, COLUMNS.values())
    )
    return "  ".join(padded).rstrip()
