"""The page and its plots: labelled axes, nothing from elsewhere, readable in black and white."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from sam_pipeline.publisher.load_test.plan import FLOW_CONTROL, MATRIX
from sam_pipeline.publisher.load_test.report.chart import (
    Axis,
    Panel,
    PlotLine,
    axis_for,
    even_ticks,
    number_text,
    svg,
)
from sam_pipeline.publisher.load_test.report.page import page

Element = ElementTree.Element


def document(**given: Any) -> dict[str, Any]:
    series = {
        "interval_s": 1.0,
        "sent_per_s": [100.0, 50.0],
        "received_per_s": [100.0, 50.0],
        "lag_median_ms": [1.0, None],
        "lag_p99_ms": [2.0, None],
        "lag_maximum_ms": [3.0, None],
    }
    if given.get("scenario") == FLOW_CONTROL:
        series |= {"slow_per_s": [50.0, 5.0], "others_per_s": [50.0, 50.0]}
        series |= {"slow_between_s": [0.5, 1.5]}
    machine = {"processors": 2, "memory_mb": 4000, "system": "Linux", "python": "3.11.7"}
    return {
        "run": "1",
        "broker": "stomp://localhost:61613",
        "server": "ActiveMQ/6.3.1",
        "machine": machine,
        "scenario": MATRIX,
        "number": 1,
        "kind": "topic",
        "persistent": True,
        "producers": 1,
        "consumers": 1,
        "size_bytes": 100,
        "rate_wanted_per_s": None,
        "started_at": "2026-11-01T00:00:00Z",
        "sent_per_s": 75.0,
        "received_per_s": 75.0,
        "received_per_s_per_consumer": 75.0,
        "payload_kb_per_s": 7.5,
        "lag_ms": {"median": 1.0, "p99": 2.0, "maximum": 3.0},
        "to_broker_ms": None,
        "from_broker_ms": None,
        "delivered": 150,
        "lost": 0,
        "late": 0,
        "duplicates": 0,
        "problems": [],
        "lost_ids": [],
        "duplicate_ids": [],
        "series": series,
        "processor": {"tool": 0.1, "limited_by": "broker"},
        **given,
    }


MATRIX_CELLS = [
    document(producers=producers, consumers=consumers, size_bytes=size)
    for producers in (1, 40)
    for consumers in (1, 80)
    for size in (0, 100, 1000)
]
RUN = [*MATRIX_CELLS, document(scenario=FLOW_CONTROL, consumers=5)]


def plots(text: str) -> list[Element]:
    found = re.findall(r'<svg class="plot".*?</svg>', text, re.DOTALL)
    return [ElementTree.fromstring(one) for one in found]


def texts(plot: Element, kind: str) -> list[str]:
    return [str(text.text) for text in plot.iter("text") if text.get("class") == kind]


def drawn_line(*points: tuple[float, float | None]) -> tuple[str, Element]:
    """The path of a line, and the plot with it."""
    x, y = Axis("consumers", 1, 80, True, (1, 80)), Axis("received messages/s", 0, 100)
    drawn = svg(Panel("1 kB", x, y, [PlotLine("1 producer", points, 0)]))
    (path,) = re.findall(r'<path d="(M[^"]+)" fill="none" stroke="#1b1b1b"', drawn)
    return path, ElementTree.fromstring(drawn)


def test_every_plot_has_two_labels_with_units_and_numbers_at_both_axes() -> None:
    drawn = plots(page([("run", RUN)]))

    assert len(drawn) == 3 * 3 + 1 + 3 + 2
    for plot in drawn:
        across, up = texts(plot, "label")
        assert across in ("consumers", "payload (bytes)", "time since the start (s)")
        assert "/s" in up or "(ms)" in up
        assert len(texts(plot, "mark")) >= 4
        assert texts(plot, "title")
    marked = [plot for plot in drawn if texts(plot, "band")]  # when a consumer is slow
    assert len(marked) == 2
    assert all(plot.findall("rect") for plot in marked)


def test_the_page_needs_nothing_from_elsewhere_and_escapes_texts_from_a_broker() -> None:
    hostile = '<script>"&'
    run = [document(server=hostile, lost=1, lost_ids=[hostile]), *RUN]

    text = page([(hostile, run)])

    elsewhere = r"<(?:script|link|img|iframe|object)\b|\bsrc=|\bhref=|url\(|@import|https?://"
    assert not re.findall(elsewhere, text)
    assert hostile not in text
    assert text.count("&lt;script&gt;") >= 3


def test_two_runs_are_beside_each_other_on_the_same_axes() -> None:
    slow = [{**one, "received_per_s": 1.0} for one in MATRIX_CELLS]

    before, after, *_ = plots(page([("before", MATRIX_CELLS), ("after", slow)]))

    assert texts(before, "title") == ["before: 0 B"]
    assert texts(after, "title") == ["after: 0 B"]
    assert texts(before, "mark") == texts(after, "mark")


def test_losses_and_duplicates_stand_out_with_their_ids() -> None:
    lossy = document(lost=2, lost_ids=["producer 0 message 3 to 4"], duplicates=1)

    text = page([("run", [lossy])])

    assert "2 lost, 0 late, 1 duplicates" in text
    assert "<span class=bad>2</span>" in text
    assert "line 1: lost: producer 0 message 3 to 4" in text


def test_points_lie_where_the_axes_say_and_a_gap_interrupts_a_line() -> None:
    path, plot = drawn_line((1, 0.0), (80, 100.0))

    assert [float(number) for number in re.findall(r"[\d.]+", path)] == [64.0, 242.0, 446.0, 30.0]
    label = next(text for text in plot.iter("text") if text.text == "consumers")
    assert float(str(label.get("x"))) == (64 + 446) / 2
    assert drawn_line((1, 1.0), (2, 1.0), (3, None), (4, 1.0), (5, 1.0))[0].count("M") == 2


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3.0, 40.0], (2.0, 50.0)), ([0.0, 1000.0], (1000.0, 2000.0)), ([], (1.0, 2.0))],
)
def test_a_logarithmic_axis_ends_at_round_numbers(
    values: list[float], expected: tuple[float, float]
) -> None:
    axis = axis_for("ms", values, is_log=True)

    assert (axis.low, axis.high) == expected
    assert len(axis.marks()) >= 2


@pytest.mark.parametrize("high", [0.03, 1.0, 7.0, 12345.0])
def test_an_even_axis_begins_at_0_and_has_a_few_round_marks(high: float) -> None:
    axis = axis_for("s", [high])

    assert axis.low == 0
    assert high <= axis.high <= 2 * high
    assert 3 <= len(axis.marks()) <= 12


def test_numbers_are_short_and_round() -> None:
    shown = [number_text(value) for value in (0.05, 0, 50, 2500, 20_000, 1_500_000)]

    assert shown == ["0.05", "0", "50", "2.5 k", "20 k", "1.5 M"]
    assert even_ticks(0, 10) == [0, 2, 4, 6, 8, 10]
    assert even_ticks(0, 5) == [0, 1, 2, 3, 4, 5]
