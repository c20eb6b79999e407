"""Mistakes of a site that refuse thousands of good results: corrected, all of them are rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from sqlalchemy import Engine

from sam_pipeline.consumer.core.state import State
from sam_pipeline.schema.identity.identity import broker_identity, uid_identity
from sam_pipeline.schema.messages.message import CLASS, Message
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.loading.letters import quota
from tests.services.broker import PASSWORD, USER, StompServer
from tests.support.builders import metric_message, metric_result
from tests.support.conservation import consumed, key_of, numbered
from tests.support.consumer.daemon import Subscription, row_keys, site_of
from tests.support.consumer.database_sink import sink_into
from tests.support.consumer.doubles import delivery
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site
from tests.support.database.dialects import only_on
from tests.support.database.own_class import make_class
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import stored

MANY = 3000
RIGHT, MISTYPED = "*.example.org", "*.exmaple.org"


def write_policy(site: Site, hosts: str, *identities: str) -> None:
    listed = ", ".join(f'"{identity}"' for identity in identities)
    site.config.with_name("policy.toml").write_text(
        f'mode = "enforce"\n[[publisher]]\nname = "nagios"\nis = [{listed}]\n'
        f'classes = ["*"]\nhosts = ["{hosts}"]\n'
    )


def mistyped_policy(site: Site) -> Callable[[], object]:
    ours = uid_identity(os.getuid())
    site.configure('policy_file = "policy.toml"')
    write_policy(site, MISTYPED, ours)
    return lambda: write_policy(site, RIGHT, ours)


def class_not_created(site: Site) -> Callable[[], object]:
    def create() -> None:
        engine = make_engine(site.database)
        make_class(engine, "weather", summaryData="text")
        engine.dispose()

    return create


def clock_of_the_host_two_days_slow(site: Site) -> Callable[[], object]:
    """SQLite has no clock to compare it with."""
    site.edit('max_age = "3653d"', 'max_age = "1d"')
    return lambda: site.edit('max_age = "1d"', 'max_age = "3653d"')


@pytest.mark.parametrize(
    ("mistake", "name"),
    [
        (mistyped_policy, "metricOutput"),
        (class_not_created, "weather"),
        (clock_of_the_host_two_days_slow, "metricOutput"),
    ],
)
def test_thousands_of_results_that_a_mistake_refuses_are_rows_after_a_replay(
    small_site: Site, mistake: Callable[[Site], Callable[[], object]], name: str
) -> None:
    correct = mistake(small_site)
    results = numbered("good", range(MANY))
    small_site.fill(*(Message({**result.headers, CLASS: name}, result.body) for result in results))
    refused = small_site.drain()
    assert (refused.code, small_site.letters()) == (65, MANY), refused.log

    correct()
    small_site.run("dead-letter", "replay", "--all")

    assert small_site.scalar(f"SELECT count(*) FROM {name}") == MANY


@only_on("postgresql")
def test_a_clock_two_days_off_judges_no_result(engine: Engine, tmp_path: Path) -> None:
    off = timedelta(days=-2)
    state = State(lambda: datetime.now(UTC) + off)
    result = metric_message(metric_result(timestamp=format_time(datetime.now(UTC))))
    with acting_as("loader", engine) as loader:
        sink = sink_into(loader, tmp_path, state)
        sink.prepare()
        sink.load([delivery(message=result)])

    assert len(stored(engine, "metricOutput")) == 1
    assert abs(state.clock_offset + off) < timedelta(seconds=30)


def test_a_publisher_without_room_for_letters_waits_at_its_broker_and_others_go_on(
    tmp_path: Path, activemq: StompServer, artemis: StompServer, destination: str
) -> None:
    """A stranger's flood, at a third source, is counted; nothing of the publisher is lost."""
    site = site_of(
        tmp_path,
        [activemq.url, artemis.url, f"spool://{tmp_path}/spool"],
        Subscription(destination),
        policy_file="policy.toml",
        trusted_brokers=[activemq.url, artemis.url],
        dead_letters_per_hour=5,
    )
    here, there = (broker_identity(broker.url, USER) for broker in (activemq, artemis))
    write_policy(site, MISTYPED, here, there)
    site.drain()
    waiting, good = (
        numbered("waiting", range(40)),
        numbered("good", range(40), hostName="ce.exmaple.org"),
    )
    for broker, messages in ((activemq, waiting), (artemis, good)):
        publish(broker.host, broker.port, destination, messages, user=USER, password=PASSWORD)
    site.fill(*numbered("stranger", range(40)))

    with patch.object(quota, "OWNER_BYTES", 8000):
        refused = site.drain(timeout_s=5)
    kept = site.scalar(f"SELECT count(*) FROM dead_letter WHERE broker = '{activemq.url}'")
    write_policy(site, "*", here, there)
    site.run("dead-letter", "replay", "--reason", "not-authorised")
    site.drain()

    assert "is not read for now" in refused.log
    assert refused.code == 69
    assert kept < len(waiting)
    rows = [key for key in row_keys(site) if not key.startswith("stranger")]
    consumed([key_of(message.body) for message in (*waiting, *good)], rows)
