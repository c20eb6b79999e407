"""Several processes of one name share the messages of a topic or a queue: `shared = true`."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.services.broker import StompServer
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, eventually, make_site, results

COUNT = 2000


@pytest.fixture(params=["/topic/VirtualTopic.", "/queue/"])
def destination(request: pytest.FixtureRequest) -> str:
    return f"{request.param}{uuid.uuid4().hex}"


@pytest.fixture
def site(tmp_path: Path, postgres_url: str, broker: StompServer, destination: str) -> Site:
    """A site with a small prefetch, so that both processes get messages."""
    site = make_site(tmp_path, postgres_url, [broker.url], destination)
    text = site.config.read_text().replace("[[consumer", "prefetch = 50\n[[consumer", 1)
    site.config.write_text(text + "shared = true\n")
    return site


@pytest.fixture
def both(site: Site) -> Iterator[Site]:
    """The site, with two daemons that have subscribed."""
    with ExitStack() as stack:
        for number in (1, 2):
            log = site.config.with_name(f"log-{number}")
            stack.enter_context(site.daemon("--instance", str(number), log=log))
            eventually(lambda log=log: "subscribed as" in log.read_text())
        yield site


def messages_by_consumer(site: Site) -> Counter[str]:
    """The number of messages that each consumer loaded, from the audit."""
    consumers = site.column("SELECT consumer FROM loaded_batch ORDER BY batch_id")
    counts = site.column("SELECT messages FROM loaded_batch ORDER BY batch_id")
    totals = Counter[str]()
    for consumer, messages in zip(consumers, counts, strict=True):
        totals[consumer] += messages
    return totals


def test_two_processes_share_the_messages_without_overlap(
    both: Site, broker: StompServer, destination: str
) -> None:
    publish(broker.host, broker.port, destination, results(COUNT))
    both.wait_for_rows(COUNT)

    counts = messages_by_consumer(both)

    assert counts.total() == COUNT
    assert set(counts) == {f"{both.name}@1", f"{both.name}@2"}


def test_pending_messages_of_a_killed_process_go_to_the_other(
    site: Site, broker: StompServer, destination: str
) -> None:
    with site.daemon("--instance", "1", log=site.config.with_name("log-1")):
        eventually(lambda: "subscribed as" in site.config.with_name("log-1").read_text())
        publish(broker.host, broker.port, destination, results(COUNT))
        site.wait_for_rows(1)
    # The killed process returns its pending messages to the broker.
    drained = site.drain(instance=2)

    assert drained.code == 0
    assert site.rows() == COUNT


@pytest.mark.parametrize("number", ["0", "-1", "x"])
def test_instance_numbers_start_at_one(tmp_path: Path, number: str) -> None:
    refused = Site(tmp_path / "sam.toml", "", "").run("run", f"--instance={number}")

    assert refused.returncode == 64
    assert "is not a whole number" in refused.stderr


def test_several_processes_need_a_shared_subscription(site: Site, destination: str) -> None:
    site.config.write_text(site.config.read_text().replace("shared = true", "shared = false"))

    refused = site.run("run", "--instance", "2")

    assert refused.returncode == 78
    assert "needs shared = true" in refused.stderr
    assert f"subscription {destination}: " in refused.stderr
