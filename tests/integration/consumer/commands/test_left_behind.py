"""A subscription that the configuration drops stays at the broker: the consumer warns of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.fake_broker import FakeBroker
from tests.support.consumer.site import Site, eventually, make_site

RABBITMQ = "RabbitMQ/3.10"


@pytest.fixture
def gone() -> Iterator[FakeBroker]:
    with FakeBroker(server=RABBITMQ) as broker:
        yield broker


@pytest.fixture
def other() -> Iterator[FakeBroker]:
    with FakeBroker(server=RABBITMQ) as broker:
        yield broker


def warnings(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines() if "not read any more" in line]


def change(site: Site, old: str, new: str) -> None:
    site.config.write_text(site.config.read_text().replace(old, new))


def test_a_reload_or_restart_names_what_is_left_behind_and_how_to_delete_it(
    tmp_path: Path, gone: FakeBroker, other: FakeBroker
) -> None:
    brokers = [gone.url, other.url]
    site = make_site(tmp_path, f"sqlite:///{tmp_path}/sam.db", brokers, "/topic/grid.one")
    log = tmp_path / "log"
    with site.daemon(log=log) as process:
        eventually(lambda: log.read_text().count("subscribed as") == 2)
        change(site, f'"{gone.url}", ', "")
        process.send_signal(signal.SIGHUP)
        eventually(lambda: log.read_text().count("subscribed as") == 3)
    [of_broker] = warnings(log)
    change(site, "/topic/grid.one", "/queue/two")
    with site.daemon(log=log):
        eventually(lambda: log.read_text().count("subscribed as") == 1)
    of_both = warnings(log)

    assert (
        f"WARNING sam_pipeline.consumer.sources.stomp.left_behind: broker {gone.url}: " in of_broker
    )
    assert f"messages in {site.name}.grid.one" in of_broker
    assert f"sam-consume unsubscribe {gone.url} /topic/grid.one" in of_broker
    assert sorted(other.url in warning for warning in of_both) == [False, True]
    forgotten = site.run("unsubscribe", gone.url, "--forget")
    assert forgotten.returncode == 0, forgotten.stderr
    with site.daemon(log=log):
        eventually(lambda: "subscribed as" in log.read_text())
    assert [other.url in warning for warning in warnings(log)] == [True]


def test_a_broker_that_never_confirmed_a_subscription_leaves_nothing_behind(tmp_path: Path) -> None:
    broker = "stomp://gone.example.invalid:61613"
    site = make_site(tmp_path, f"sqlite:///{tmp_path}/sam.db", [broker], "/topic/grid.one")
    log = tmp_path / "log"
    with site.daemon(log=log):
        eventually(lambda: "starting with" in log.read_text())
    change(site, "gone.", "other.")
    with site.daemon(log=log):
        eventually(lambda: "starting with" in log.read_text())

    assert warnings(log) == []
