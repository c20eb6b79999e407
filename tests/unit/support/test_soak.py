"""What the soak calls a leak, its log that survives kills, and its records and events."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pytest

from tests.kills.faults import FAULTS
from tests.soak.events import EVENTS, events
from tests.soak.growth import Sample, growth, leaks
from tests.soak.log import BAD, END, SAMPLE, SUMS, WINDOW, SoakLog, totals
from tests.soak.records import CLASSES, RecordClass, keys_in, text_of

MIDNIGHT = datetime(2018, 9, 9, tzinfo=UTC)


def life(hours: float = 1.0, leak: float = 0.0, jump: float = 0.0, seed: int = 0) -> list[Sample]:
    """A process of 60 MB that fills its caches at first, then grows by `leak` MB per hour.

    Each 20th minute it has `jump` MB more, for four minutes.
    """
    chance = random.Random(seed)
    return [
        (
            at_s,
            40
            + 20 * min(1, at_s / (288 * hours))
            + leak * at_s / 3600
            + jump * (at_s % 1200 < 240)
            + chance.gauss(0, 0.3),
        )
        for at_s in range(0, int(3600 * hours), 10)
    ]


@pytest.mark.parametrize(
    ("samples", "is_leak"),
    [
        *((life(seed=seed), False) for seed in range(20)),
        *((life(leak=4.0, seed=seed), True) for seed in range(20)),
        (life(1.0, leak=0.6), False),
        (life(6.0, leak=0.6), True),
        (life(2.0, jump=30.0), False),
        (life(2.0, leak=10.0, jump=30.0), True),
    ],
)
def test_only_a_process_that_grows_for_as_long_as_it_lives_leaks(
    samples: list[Sample], is_leak: bool
) -> None:
    found = growth(samples)

    assert found
    assert found.is_leak == is_leak


def test_a_short_life_is_not_judged() -> None:
    assert growth(life(0.3, leak=100.0)) is None


def test_a_killed_run_counts_up_to_its_last_window_and_a_leak_is_a_problem(tmp_path: Path) -> None:
    log = SoakLog(tmp_path / "log.jsonl")
    bad = dict.fromkeys([*SUMS, *BAD], 0) | {"seconds": 1800, "faults": {"all killed": 2}}
    log.append(WINDOW, 1, **bad | {"messages": 10})
    with log.path.open("a") as file:
        file.write('{"kind": "window", "run": 1, "mess')
    log.append(WINDOW, 2, **bad | {"messages": 20, "lost": 1})
    log.append(END, 2, problems=["window 0: lost: 1"])
    for at_s, size in life(leak=8.0):
        log.append(SAMPLE, 2, at_s=at_s, rss={"consumer": 1e6 * size}, descriptors={"consumer": 9})

    total = totals(list(log.entries(WINDOW, END)))

    assert (total.runs, total.seconds, total.sums["messages"]) == (2, 3600, 30)
    assert (total.sums["lost"], total.faults["all killed"]) == (1, 4)
    assert total.problems == ["run 2: window 0: lost: 1"]
    assert leaks(log, 1) == []
    assert [problem.split(":")[1] for problem in leaks(log, 2)] == [" consumer, memory"]


@pytest.mark.parametrize("record_class", CLASSES.values(), ids=lambda item: item.name)
def test_keys_are_found_in_records_of_every_class(record_class: RecordClass) -> None:
    chance = random.Random(0)
    texts = [text_of(record_class, "12345678x", n, MIDNIGHT, chance) for n in range(3000)]

    details = [text.partition("detailsData: ")[2].removesuffix("\nEOT\n") for text in texts]
    assert keys_in("".join(texts).encode()) == [f"12345678x-{n}" for n in range(3000)]
    assert all(not text or int(text.split()[0]) == len(text) for text in details)


def test_a_seed_repeats_its_events_and_all_of_them_occur() -> None:
    first, again, other = (list(islice(events(seed), 500)) for seed in ("7-0", "7-0", "7-1"))

    assert first == again != other
    assert {event.name for event in first} == {*FAULTS, *EVENTS}
