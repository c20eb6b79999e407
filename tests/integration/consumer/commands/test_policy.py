"""`sam-consume` under a policy, with a spool as its source."""

from __future__ import annotations

import json
import os
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.consumer.core.inbox import Delivery
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.sinks.database import DatabaseSink
from sam_pipeline.schema.identity.holder import PolicyHolder
from sam_pipeline.schema.identity.identity import uid_identity, with_identity
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.loading.replay import FAILED, LOADED
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.site import Site, eventually, fill_spool, make_site

OURS = uid_identity(os.getuid())


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A site on SQLite that reads one spool, with a policy for the account of this process."""
    site = make_site(tmp_path, f"sqlite:///{tmp_path}/sam.db", [f"spool://{tmp_path}/in"])
    text = site.config.read_text()
    site.config.write_text(text.replace("[consumer]\n", '[consumer]\npublishers = "policy.toml"\n'))
    write_policy(site, hosts="*.example.org")
    return site


def write_policy(site: Site, mode: str = "enforce", hosts: str = "*", more: str = "") -> Path:
    file = site.config.parent / "policy.toml"
    file.write_text(
        f'mode = "{mode}"\n[[publisher]]\nname = "local"\nis = ["{OURS}"]\n'
        f'classes = ["metricOutput"]\nhosts = ["{hosts}"]\n{more}'
    )
    return file


def send(site: Site, *hosts: str, **changes: str) -> None:
    records = [metric_result(hostName=host, **changes) for host in hosts]
    fill_spool(site.config.parent / "in", [metric_message(*records)])


def output(site: Site, *arguments: str) -> Any:
    return json.loads(site.run(*arguments, "--json").stdout)


def test_a_drain_refuses_what_the_policy_does_not_allow(site: Site) -> None:
    send(site, "ce.example.org", "ce.example.com")

    counts = output(site, "run", "--drain")

    assert counts["rows"] == 1
    assert counts["dead_letters"] == {"not-authorised": 1}
    assert counts["refusals"] == {"local": {"not-authorised": 1}}
    assert OURS in site.scalar("SELECT error FROM dead_letter")


def test_a_policy_that_observes_loads_and_counts(site: Site) -> None:
    write_policy(site, "observe", "*.example.org")
    send(site, "ce.example.org", "ce.example.com")

    counts = output(site, "run", "--drain")

    assert (counts["rows"], counts["dead_letters"]) == (2, {})
    assert counts["refusals"] == {"local": {"not-authorised": 1}}


def test_a_replay_asks_the_policy_as_it_is_now(site: Site) -> None:
    send(site, "ce.example.com")
    site.drain()

    [refused] = output(site, "dead-letter", "replay", "--all")
    write_policy(site)
    [allowed] = output(site, "dead-letter", "replay", "--all")

    assert (refused["outcome"], refused["reason"]) == (FAILED, "not-authorised")
    assert allowed["outcome"] == LOADED


@pytest.mark.parametrize("command", [("run", "--drain"), ("dead-letter", "replay", "--all")])
def test_nothing_is_loaded_while_the_policy_has_problems(
    site: Site, command: tuple[str, ...]
) -> None:
    send(site, "ce.example.com")
    site.drain()
    write_policy(site, "enforced")

    done = site.run(*command)

    assert done.returncode == 78
    assert "policy.toml:1: mode" in done.stderr
    assert site.rows() == 0


def test_sighup_reads_the_policy_again_unless_it_has_problems(site: Site, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with site.daemon(log=log) as process:
        send(site, "a.example.com")
        eventually(lambda: site.scalar("SELECT count(*) FROM dead_letter") == 1)

        write_policy(site, "enforced")
        process.send_signal(signal.SIGHUP)
        eventually(lambda: "policy.toml:1: mode" in log.read_text())
        send(site, "b.example.com")
        eventually(lambda: site.scalar("SELECT count(*) FROM dead_letter") == 2)

        write_policy(site)
        process.send_signal(signal.SIGHUP)
        eventually(lambda: site.scalar("SELECT count(*) FROM operation") == 1)
        send(site, "c.example.com")
        site.wait_for_rows(1)

    assert site.scalar("SELECT command FROM operation") == "policy read"
    assert json.loads(site.scalar("SELECT arguments FROM operation"))["publishers"] == "1"


class Session:
    """A source that is never acked."""

    batch_size = 1000
    answers = False

    def __init__(self, broker: str) -> None:
        self.broker = broker

    def ack(self, tokens: object) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(("mode", "pauses"), [("enforce", {"spool:///a"}), ("observe", set())])
def test_the_source_of_a_publisher_above_its_rate_pauses(
    site: Site, mode: str, pauses: set[str]
) -> None:
    file = write_policy(site, mode, more="records_per_minute = 2\n")
    sink = DatabaseSink(
        make_engine(f"sqlite:///{file.parent}/sam.db"),
        "x",
        Limits(),
        State(),
        1000,
        10**6,
        policy=PolicyHolder(file),
    )

    def delivery(broker: str, sender: str) -> Delivery:
        message: Message = metric_message(metric_result(), metric_result(metricName="org.sam.B"))
        return Delivery(with_identity(message, sender), Session(broker), None)

    batch = [delivery("spool:///a", OURS)] * 2 + [delivery("spool:///b", "uid:99")] * 2
    tally = sink.load(batch, (), nullcontext)

    assert set(tally.pauses) == pauses
