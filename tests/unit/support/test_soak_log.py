"""The log of the soak: it survives kills, and adds runs up."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from tests.soak.chart import chart
from tests.soak.log import BAD, END, RUN, SAMPLE, SUMS, WINDOW, SoakLog, totals
from tests.soak.verdict import growth_lines, leaks


def window(messages: int, **changes: object) -> dict[str, object]:
    sums = {**dict.fromkeys((*SUMS, *BAD), 0), "messages": messages}
    return {**sums, "seconds": 1800.0, "faults": {"all killed": 2}, **changes}


def samples(hours: float, leak_bytes: float = 0.0) -> list[dict[str, object]]:
    """Of one process, whose memory grows by so much per hour."""
    times = [10.0 * number for number in range(1, int(360 * hours))]
    return [
        {
            "at_s": at_s,
            "committed": None if at_s % 600 < 10 else 7000,
            "published": int(700 * at_s),
            "lag_s": None if at_s % 600 < 10 else 0.2,
            "rss": {"consumer": int(60e6 + leak_bytes * at_s / 3600)},
            "descriptors": {"consumer": 25},
            "database_bytes": 10**8,
            "broker_bytes": 10**8,
            "spool_bytes": 0,
        }
        for at_s in times
    ]


def test_runs_are_added_up(tmp_path: Path) -> None:
    log = SoakLog(tmp_path / "soak" / "log.jsonl")
    log.append(RUN, 1, hours=1)
    log.append(WINDOW, 1, **window(1_000_000))
    log.append(WINDOW, 1, **window(500_000))
    log.append(RUN, 2, hours=1)
    log.append(WINDOW, 2, **window(2_000_000, lost=1))
    log.append(END, 2, problems=["window 0: lost: 1"])

    total = totals(list(log.entries(WINDOW, END)))

    assert (total.runs, total.seconds, total.sums["messages"]) == (2, 5400, 3_500_000)
    assert (total.sums["lost"], total.faults["all killed"]) == (1, 6)
    assert total.problems == ["run 2: window 0: lost: 1"]
    assert "3,500,000" in str(total)


def test_a_line_that_a_kill_has_cut_is_skipped_and_the_next_run_goes_on(tmp_path: Path) -> None:
    log = SoakLog(tmp_path / "log.jsonl")
    log.append(WINDOW, 1, **window(10))
    with log.path.open("a") as file:
        file.write('{"kind": "window", "run": 1, "mess')

    log.append(WINDOW, 2, **window(20))

    assert [entry["messages"] for entry in log.entries(WINDOW)] == [10, 20]


def test_the_growth_of_a_process_is_a_problem_of_the_run(tmp_path: Path) -> None:
    log = SoakLog(tmp_path / "log.jsonl")
    for run, leak_bytes in ((1, 0.0), (2, 8e6)):
        for sample in samples(1, leak_bytes):
            log.append(SAMPLE, run, **sample)

    assert leaks(log, 1) == []
    [problem] = leaks(log, 2)
    assert problem.startswith("a leak: consumer, memory: median 6")
    assert len(growth_lines(log, 2)) == 2


def test_the_chart_has_a_line_for_each_series_within_its_panel() -> None:
    drawn = ElementTree.fromstring(chart(samples(1), [window(1000), window(2000)]))

    texts = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "1.0 hours, 3,000 messages, 4 faults and pauses, 0 lost or twice"
    titles = ("rate (1/s)", "lag (s)", "memory (MB)", "disk (MB)", "open files")
    assert set(titles) < set(texts)
    lines = list(drawn.iter("{http://www.w3.org/2000/svg}polyline"))
    assert len(lines) == 2 + 1 + 1 + 3 + 1
    for line in lines:
        points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        assert len(points) > 100
        assert all(0 < x < 860 and 0 < y < 860 for x, y in points)
