"""Destinations: those that consumers can subscribe to, and suggestions for near misses."""

from __future__ import annotations

import pytest

from sam_pipeline.schema.messages.destination import name_of_destination, problem_of_destination

GOOD = (
    *("/topic/grid.probe.metricOutput", "/queue/Consumer.site-a.VirtualTopic.x", "/topic/a#b"),
    *("/topic/x::site-a", "/topic/site/probes", "/queue/m\u00e9trique", "/amq/queue/own"),
    "/exchange/grid/key",
)
NAMES = ("", "/", "a b", " ", "a\nb", "a\0", "a\u00a0b", "a\u202eb")


@pytest.mark.parametrize("destination", GOOD)
def test_a_topic_a_queue_and_the_forms_of_rabbitmq_are_destinations(destination: str) -> None:
    assert problem_of_destination(destination) is None


MEANT = {
    "/topics/a.b": "/topic/a.b",
    "topic/a.b": "/topic/a.b",
    "/Topic/x": "/topic/x",
    " /queues/x ": "/queue/x",
    "topic://x": "/topic/x",
    "a.b": "/topic/a.b",
    "/topic//x/": "/topic/x",
    **dict.fromkeys(("", "/", "/topic", "/dsub/x", "/exchanges/a/b"), ""),
}


@pytest.mark.parametrize("destination", MEANT)
def test_a_near_miss_names_what_was_meant_and_any_other_text_is_refused(destination: str) -> None:
    problem, meant = problem_of_destination(destination) or "", MEANT[destination]

    assert (f"did you mean {meant}?" if meant else "/topic/NAME") in problem
    assert ("did you mean" in problem) == bool(meant)


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_name_and_blanks_are_refused_at_both_ends(name: str) -> None:
    assert problem_of_destination(f"/topic/{name}")
    assert problem_of_destination(f"/topic/{name}", wildcards=True)


@pytest.mark.parametrize("destination", ["/topic/*", "/topic/a.*.b", "/queue/a.>", "/topic/a.#"])
def test_a_wildcard_can_only_be_subscribed_to(destination: str) -> None:
    assert "wildcard" in str(problem_of_destination(destination))
    assert problem_of_destination(destination, wildcards=True) is None


DELIVERED = {
    "/topic/grid.probe.x": "grid.probe.x",
    "/amq/queue/x": "x",
    "/exchange/amq.topic/x.y": "x.y",
    "x": "x",
    "/queue/Consumer.site-a.VirtualTopic.x.y": "VirtualTopic.x.y",
    "/queue/Consumer.a.b.VirtualTopic.x": "Consumer.a.b.VirtualTopic.x",
    "/queue/Consumer.VirtualTopic.x": "Consumer.VirtualTopic.x",
}


def test_a_destination_has_the_same_name_however_a_broker_delivers() -> None:
    assert {text: name_of_destination(text) for text in DELIVERED} == DELIVERED
