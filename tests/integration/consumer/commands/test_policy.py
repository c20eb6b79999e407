"""`sam-consume` under a policy, and `sam-consume publishers`, with a spool as the source."""

from __future__ import annotations

import json
import os
import signal
from contextlib import nullcontext
from pathlib import Path

import pytest

from sam_pipeline.consumer.core.inbox import Delivery
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.sinks.database import DatabaseSink
from sam_pipeline.schema.identity.holder import PolicyHolder
from sam_pipeline.schema.identity.identity import uid_identity, with_identity
from sam_pipeline.schema.identity.policy import OBSERVE
from sam_pipeline.schema.identity.policy_file import load_policy
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.loading.replay import FAILED, LOADED
from tests.services.postgres import as_role
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.daemon import running
from tests.support.consumer.doubles import FakeSession
from tests.support.consumer.site import Site, eventually, make_site

OURS = uid_identity(os.getuid())


@pytest.fixture
def site(small_site: Site) -> Site:
    small_site.configure('publishers = "policy.toml"')
    write_policy(small_site, hosts="*.example.org")
    return small_site


def write_policy(site: Site, mode: str = "enforce", hosts: str = "*", more: str = "") -> Path:
    file = site.config.with_name("policy.toml")
    file.write_text(
        f'mode = "{mode}"\n[[publisher]]\nname = "local"\nis = ["{OURS}"]\n'
        f'classes = ["metricOutput"]\nhosts = ["{hosts}"]\n{more}'
    )
    return file


def send(site: Site, *hosts: str) -> None:
    site.fill(metric_message(*(metric_result(hostName=host) for host in hosts)))


@pytest.mark.parametrize(
    ("mode", "rows", "letters"), [("enforce", 1, {"not-authorised": 1}), ("observe", 2, {})]
)
def test_records_that_the_policy_does_not_allow_are_refused_or_only_counted(
    site: Site, mode: str, rows: int, letters: dict[str, int]
) -> None:
    write_policy(site, mode, "*.example.org")
    send(site, "ce.example.org", "ce.example.com")

    counts = site.drain().summary

    assert (counts["rows"], counts["dead_letters"]) == (rows, letters)
    assert counts["refusals"] == {"local": {"not-authorised": 1}}
    assert all(OURS in error for error in site.column("SELECT error FROM dead_letter"))


def test_a_replay_asks_the_policy_as_it_is_now_and_nothing_is_loaded_while_it_is_invalid(
    site: Site,
) -> None:
    send(site, "ce.example.com")
    site.drain()
    [refused] = site.json("dead-letter", "replay", "--all", code=65)
    write_policy(site, "enforced")
    invalid = [
        site.run(*command) for command in (("run", "--drain"), ("dead-letter", "replay", "--all"))
    ]
    write_policy(site)
    [allowed] = site.json("dead-letter", "replay", "--all")

    assert (refused["outcome"], refused["reason"]) == (FAILED, "not-authorised")
    assert [(done.returncode, "policy.toml:1: mode" in done.stderr) for done in invalid] == [
        (78, True)
    ] * 2
    assert allowed["outcome"] == LOADED


def test_sighup_reads_the_policy_again_unless_it_has_problems(site: Site) -> None:
    with running(site) as daemon:
        send(site, "a.example.com")
        eventually(lambda: site.letters() == 1)

        write_policy(site, "enforced")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for("policy.toml:1: mode")
        send(site, "b.example.com")
        eventually(lambda: site.letters() == 2)

        write_policy(site)
        daemon.process.send_signal(signal.SIGHUP)
        eventually(lambda: site.scalar("SELECT count(*) FROM operation") == 1)
        send(site, "c.example.com")
        site.wait_for_rows(1)

    assert site.scalar("SELECT command FROM operation") == "policy read"
    assert json.loads(site.scalar("SELECT arguments FROM operation"))["publishers"] == "1"


@pytest.mark.parametrize(
    ("mode", "pauses"), [("enforce", {"spool:///a", OURS}), ("observe", set())]
)
def test_the_source_or_identity_of_a_publisher_above_its_rate_pauses(
    site: Site, mode: str, pauses: set[str]
) -> None:
    policy = PolicyHolder(write_policy(site, mode, more="records_per_minute = 2\n"))
    engine = make_engine(site.database)
    sink = DatabaseSink(engine, "x", Limits(), State(), 1000, 10**6, policy=policy)

    def delivery(broker: str, sender: str, answers: bool = False) -> Delivery:
        message = metric_message(metric_result(), metric_result(metricName="org.sam.B"))
        return Delivery(with_identity(message, sender), FakeSession(broker, answers), None)

    batch = [delivery("spool:///a", OURS), delivery("spool:///b", "uid:99")] * 2
    tally = sink.load([*batch, delivery("listen+http://c", OURS, answers=True)], (), nullcontext)
    engine.dispose()

    assert set(tally.pauses) == pauses


def test_publishers_are_listed_as_json_and_as_a_policy_that_can_be_loaded(
    tmp_path: Path, own_url: str
) -> None:
    site = make_site(tmp_path, own_url, [f"spool://{tmp_path}/spool"])
    good = metric_message(metric_result(monitoringHost="nagios1"))
    site.fill(good, good, metric_message(metric_result(metricStatus="MAYBE")))
    assert site.drain().code == 65
    site.edit(as_role(own_url, "loader"), as_role(own_url, "reader"))

    [publisher] = site.json("publishers")
    suggested = tmp_path / "publishers.toml"
    suggested.write_text(site.run("publishers", "--suggest").stdout)

    [of_class] = publisher.pop("classes")
    assert publisher == {"publisher": OURS, "name": None, "accepted": 2, "refused": 1}
    assert (of_class["class"], of_class["records"]) == ("metricOutput", 1)
    policy = load_policy(suggested)
    [allowed] = policy.publishers
    assert policy.mode == OBSERVE
    assert (allowed.identities, allowed.classes) == ((OURS,), ("metricOutput",))
    assert (allowed.hosts, allowed.monitoring_hosts) == (("ce01.example.org",), ("nagios1",))
