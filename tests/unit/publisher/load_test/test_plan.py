"""What is measured, and the bounds that are printed before."""

from __future__ import annotations

import pytest

from sam_pipeline.publisher.load_test.plan import (
    MATRIX,
    QUEUE,
    SCENARIOS,
    TOPIC,
    WARM_UP,
    LoadCell,
    LoadSelection,
    bounds_text,
    plan,
)


def test_the_matrix_is_the_published_one() -> None:
    warm_up, *cells = plan(LoadSelection())

    assert warm_up.scenario == WARM_UP
    assert {cell.producers for cell in cells} == {1, 2, 3, 5, 10, 40}
    assert {cell.consumers for cell in cells} == {1, 2, 3, 5, 10, 80}
    assert {cell.size_bytes for cell in cells} == {0, 100, 1000, 10_000}
    assert len(cells) == 6 * 6 * 4
    assert {(cell.kind, cell.persistent) for cell in cells} == {(TOPIC, True)}


def test_both_kinds_and_both_modes_are_measured_if_both_are_selected() -> None:
    _, *cells = plan(LoadSelection(kinds=[TOPIC, QUEUE], persistence=[True, False]))

    assert len(cells) == 4 * 6 * 6 * 4
    assert len({(cell.kind, cell.persistent) for cell in cells}) == 4


def test_the_scenarios_of_the_field() -> None:
    _, collector, fan_out, flow_control = plan(LoadSelection(scenarios=list(SCENARIOS)))

    assert (collector.producers, collector.consumers, collector.rate) == (300, 1, 2000)
    assert (fan_out.producers, fan_out.consumers, fan_out.size_bytes) == (10, 100, 200)
    assert fan_out.persistent
    assert flow_control.has_slow_consumer
    assert flow_control.rate == 2000
    assert flow_control.slow_between() == (10.0, 20.0)


@pytest.mark.parametrize("name", [MATRIX, *SCENARIOS])
def test_the_bounds_of_the_options_apply_to_every_cell(name: str) -> None:
    cells = plan(LoadSelection(scenarios=[name], messages=7, seconds=0.5))

    assert {(cell.messages, cell.seconds) for cell in cells} == {(7, 0.5)}


def test_the_bounds_are_the_sums_of_all_cells() -> None:
    cells = [
        LoadCell(MATRIX, TOPIC, True, 1, 80, 10_000, 1000, 5.0),
        LoadCell(MATRIX, QUEUE, True, 1, 80, 10_000, 1000, 5.0),
    ]

    assert bounds_text(cells) == (
        "2 cells, the first one to warm up: at most 2 000 messages sent, 81 000 received"
        " (810 MB of payload), 10 s of sending, 5 min with all waits"
    )


@pytest.mark.parametrize(("producers", "messages"), [(3, 10), (40, 7), (1, 1)])
def test_the_producers_share_the_messages(producers: int, messages: int) -> None:
    cell = LoadCell(MATRIX, TOPIC, True, producers, 1, 0, messages, 1.0)
    shares = [cell.share(number) for number in range(producers)]

    assert sum(shares) == messages
    assert max(shares) - min(shares) <= 1
