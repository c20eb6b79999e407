"""The life of a consumer: a deadly message, a reload, tokens, memory, its check and its policy."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from sam_pipeline.consumer.commands.run import CONFIGURATION, CONTINUING
from sam_pipeline.consumer.core.inbox import Delivery
from sam_pipeline.consumer.monitoring.snapshot import DEGRADED, RUNNING, is_alive, process_start
from sam_pipeline.schema.identity.identity import uid_identity, with_identity
from sam_pipeline.schema.identity.policy import OBSERVE, load_policy
from sam_pipeline.schema.identity.tokens import load_tokens
from sam_pipeline.schema.messages.message import new_message
from sam_pipeline.schema.program.command import CONFIG, NO_INPUT, OK, USAGE
from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.loading.replay import FAILED, LOADED
from tests.services.broker import StompServer
from tests.services.postgres import as_role
from tests.support.brokers.queue_reader import ids, received
from tests.support.builders import metric_message, metric_result
from tests.support.conservation import numbered
from tests.support.consumer.daemon import (
    STARTING,
    Subscription,
    checked,
    row_keys,
    running,
    site_of,
)
from tests.support.consumer.database_sink import sink_into
from tests.support.consumer.doubles import FakeSession
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, eventually, fill_spool, make_site, results
from tests.support.consumer.snapshot import snapshot
from tests.support.invoke import invoke

# Simulates a message that crashes the interpreter.
KILLED_BY_A_MESSAGE = """
import os, signal, sys
from sam_pipeline.schema.messages.decode import CachedDecoder
decode = CachedDecoder.decode
def deadly(decoder, message):
    if b"KILLER" in message.body:
        os.kill(os.getpid(), signal.SIGKILL)
    return decode(decoder, message)
CachedDecoder.decode = deadly
from sam_pipeline.consumer.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_message_that_kills_the_process_becomes_a_dead_letter_and_the_others_rows(
    small_site: Site,
) -> None:
    messages = results(100)
    messages.insert(50, new_message("metricOutput", "KILLER", record_count=1))
    small_site.fill(*messages)
    command = small_site.command("run", "--drain", program=KILLED_BY_A_MESSAGE)

    codes = []
    while len(codes) < 10 and (not codes or codes[-1] == -signal.SIGKILL):
        codes.append(subprocess.run(command, capture_output=True, timeout=60).returncode)

    assert codes == [-signal.SIGKILL] * 4 + [65]
    assert small_site.rows() == 100
    assert small_site.scalar("SELECT reason FROM dead_letter") == "poison"
    assert DirectoryQueue(small_site.config.with_name("spool")).count() == 0


def test_sighup_reads_the_configuration_again(small_site: Site, tmp_path: Path) -> None:
    with running(small_site) as daemon:
        small_site.fill(*results(3, "org.sam.Before"))
        small_site.wait_for_rows(3)
        small_site.edit(f"spool://{tmp_path}/spool", f"spool://{tmp_path}/other")
        daemon.process.send_signal(signal.SIGHUP)
        fill_spool(tmp_path / "other", results(4, "org.sam.After"))
        small_site.wait_for_rows(7)
        second = small_site.run("run", "--drain")
        stopped = daemon.stop()

    assert (stopped.code, stopped.messages, len(daemon.lines(STARTING))) == (0, 7, 2)
    assert second.returncode == 69
    assert f"process {daemon.process.pid}" in second.stderr


BAD_FILES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "not TOML": ("sam.toml", lambda file: file.write_text("= = x\n")),
    "gone": ("sam.toml", lambda file: file.unlink()),
    "half written": ("sam.toml", lambda file: file.write_text(file.read_text()[:60])),
    "an unknown key of the database": ("sam.toml", lambda file: edit(file, "url =", "uri =")),
    "another database, and an unknown key": (
        "sam.toml",
        lambda file: edit(file, "sam.db", "other.db", "[consumer]", "[consumer]\nnam = 1"),
    ),
    "another name": ("sam.toml", lambda file: edit(file, 'name = "', 'name = "other-')),
    "a fragment": ("conf.d/10.toml", lambda file: file.write_text("[consumer]\nbatch_size = 0\n")),
    "a policy": ("policy.toml", lambda file: file.write_text('mode = "enforced"\n')),
    "no policy": ("policy.toml", lambda file: file.unlink()),
    "a key without its certificate": ("host.key", lambda file: write_host(file.parent, "key")),
}
"""Files that a reload refuses, and how each is spoiled."""


def write_host(directory: Path, *kinds: str) -> None:
    """Write the certificate of a host, its key, or both."""
    host = trustme.CA().issue_cert("site.example.org")
    parts = {"pem": host.cert_chain_pems[0], "key": host.private_key_pem}
    for kind in kinds:
        (directory / f"host.{kind}").write_bytes(parts[kind].bytes())
        (directory / f"host.{kind}").chmod(0o600)


def edit(file: Path, *changes: str) -> None:
    text = file.read_text()
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)


def test_a_reload_is_all_or_nothing(site: Site, tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "10.toml").write_text("[consumer]\nbatch_size = 7\n")
    shutil.copy(tmp_path / "sam.db", tmp_path / "other.db")
    write_host(tmp_path, "pem", "key")
    site.configure('metrics_certificate_file = "host.pem"\nmetrics_key_file = "host.key"')
    with running(site) as daemon:
        daemon.wait_for(STARTING)
        for number, (name, (place, spoil)) in enumerate(BAD_FILES.items(), 1):
            file = tmp_path / place
            good = file.read_bytes()
            spoil(file)
            checked = invoke("sam-consume", "--config", site.config, "check", "--files")
            daemon.process.send_signal(signal.SIGHUP)
            daemon.wait_for(CONTINUING, times=number)
            send(site, f"ce{number}.example.org")
            site.wait_for_rows(number)
            file.write_bytes(good)
            eventually(lambda: [*site.status()["unused_files"]] == [CONFIGURATION])
            degraded = site.status()["state"] == DEGRADED
            daemon.process.send_signal(signal.SIGHUP)
            daemon.wait_for(STARTING, times=number + 1)

            # Only the daemon knows that its name was another one.
            assert (checked.code == OK) is (name == "another name"), name
            assert degraded
        eventually(lambda: site.status()["state"] == RUNNING)

    assert site.rows() == len(BAD_FILES)


def test_a_policy_that_refuses_much_of_the_last_hour_is_used_only_if_it_accepts_that(
    site: Site,
) -> None:
    with running(site) as daemon:
        send(site, *(f"ce{number}.example.org" for number in range(8)), "wn1.example.com")
        site.wait_for_rows(8)
        file = write_policy(site, hosts="*.exmaple.org")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for("refuse 100%", "ce0.example.org")
        eventually(lambda: "accepted in the last hour" in str(site.status()["unused_files"]))

        edit(file, "mode =", "accept_refusals = true\nmode =")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for(STARTING, times=2)
        send(site, "ce9.example.org")
        eventually(lambda: site.letters() == 2)


def test_tokens_of_senders_over_http_are_made_once_and_work_from_their_file(
    small_site: Site,
) -> None:
    small_site.config.write_text(
        '[consumer]\nbrokers = ["listen+http://127.0.0.1:8080"]\n'
        '[consumer.door]\ntokens_file = "tokens"\n'
    )
    file = small_site.config.with_name("tokens")

    made = small_site.run("token", "add", "a")
    second = small_site.json("token", "add", "b")
    listed = small_site.json("token", "list")

    tokens = load_tokens(file)
    assert tokens.name_of(made.stdout.removesuffix("\n")) == "a"
    assert (tokens.name_of(second["token"]), second["identity"]) == ("b", "token:b")
    assert [(row["name"], row["line"]) for row in listed] == [("a", 1), ("b", 2)]
    assert made.stdout.strip() not in made.stderr
    third = small_site.json("token", "add", "a")
    unknown = small_site.run("token", "remove", "c")
    small_site.run("token", "remove", "a", listed[0]["sha256"])
    remaining = load_tokens(file)
    assert unknown.returncode == USAGE
    assert remaining.name_of(made.stdout.removesuffix("\n")) is None
    assert (remaining.name_of(third["token"]), remaining.name_of(second["token"])) == ("a", "b")
    file.chmod(0o644)  # others can read it
    refused = small_site.run("token", "add", "d")
    assert (refused.returncode, refused.stdout) == (CONFIG, "")


def test_a_list_of_tokens_without_a_file_is_empty_and_says_so(small_site: Site) -> None:
    none, missing = small_site.run("token", "list"), small_site.run("token", "list", "--file", "no")

    assert (none.returncode, small_site.json("token", "list")) == (0, [])
    assert none.stdout == "no tokens: [consumer.door] has no tokens_file; name a file with --file\n"
    assert (missing.returncode, missing.stdout) == (NO_INPUT, "")
    assert "no does not exist: `token add` creates it" in missing.stderr
    assert small_site.run("token", "add", "a").returncode == USAGE


KEPT_MB = 10
FREED_MB = 90

# Every tenth block stays in use, as those that outlive an outage: the heap can't shrink at its end.
PROGRAM = f"""
import os, time
from sam_pipeline.consumer.process.allocator import return_large_blocks, returning_free_pages

def resident_mb():
    pages = open("/proc/self/statm").read().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6

return_large_blocks()
blocks = [bytes(5000) for _ in range({(KEPT_MB + FREED_MB) * 200})]
kept = blocks[::{(KEPT_MB + FREED_MB) // KEPT_MB}]
del blocks
before = lowest = resident_mb()
with returning_free_pages(every_s=0.05):
    deadline = time.monotonic() + 10
    while before - lowest < {FREED_MB} / 2 and time.monotonic() < deadline:
        time.sleep(0.05)
        lowest = min(lowest, resident_mb())
print(before, lowest)
"""


def test_free_pages_in_the_middle_of_the_heap_go_back_to_the_system() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )

    before, after = map(float, done.stdout.split())
    assert before > KEPT_MB + FREED_MB / 2
    assert before - after >= FREED_MB / 2


def test_a_zombie_and_a_reaped_process_are_not_alive() -> None:
    child = subprocess.Popen(["sleep", "60"])
    state = snapshot(pid=child.pid, process_start=process_start(child.pid))
    assert is_alive(state)

    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, but not reaped yet
    assert not is_alive(state)

    child.wait()
    assert not is_alive(state)


POLICY = 'mode = "{}"\n[[publisher]]\nname = "a"\nis = ["broker:*/x"]\nclasses = ["{}"]\n'


def with_policy(mode: str, name: str = "metricOutput") -> Callable[[Site], None]:
    def prepare(site: Site) -> None:
        site.config.with_name("policy.toml").write_text(POLICY.format(mode, name))
        site.configure('policy_file = "policy.toml"')

    return prepare


@pytest.mark.parametrize(
    ("prepare", "code", "words"),
    [
        (lambda site: None, 0, ["policy_file is not set"]),
        (with_policy("enforce"), 0, ["1 publisher, first a, can't be recognised"]),
        (with_policy("inforce"), 78, ["inforce"]),
        (with_policy("enforce", "serviceEndpiont"), 78, ["did you mean serviceEndpoint?"]),
        (lambda site: site.execute("DROP TRIGGER downtime_insert"), 78, ["class downtime: view"]),
        (lambda site: site.config.with_name("spool").write_text(""), 78, ["not a directory"]),
        (
            lambda site: site.config.write_text(
                '[consumer]\nbroker = ["x"]\nbatch_size = 0\n[database]\nurl = "sqlite:///n.db"\n'
            ),
            *(78, ["did you mean brokers?", "batch_size", "n.db: no such database"]),
        ),
    ],
)
def test_check_reports_every_problem_at_once_and_notes_the_rest(
    small_site: Site, prepare: Callable[[Site], object], code: int, words: list[str]
) -> None:
    prepare(small_site)

    found = small_site.json("check", code=code)["problems" if code else "notes"]

    assert [word for word in words if not any(word in text for text in found)] == [], found
    assert len(found) == len(words) or code
    assert ("no problem found" in small_site.run("check").stdout) is (code == 0)


@pytest.fixture
def name() -> str:
    return f"grid.probe.{uuid.uuid4().hex}"


def test_every_topic_passes_a_round_trip_beside_a_running_consumer(
    tmp_path: Path, broker: StompServer, name: str
) -> None:
    """The consumer counts the messages of the check and loads none of them."""
    subscriptions = [Subscription(f"/topic/{name}"), Subscription(f"/topic/{name}.*", "downtime")]
    site = site_of(tmp_path, [broker.url], *subscriptions)
    with running(site) as daemon:
        daemon.wait_until_subscribed(broker.url)
        code, document = checked(site)
        publish(broker.host, broker.port, f"/topic/{name}", numbered("after", range(5)))
        site.wait_for_rows(5)
        stopped = daemon.stop()

    trips = document["brokers"]
    assert (code, document["problems"]) == (0, [])
    assert [trip["proven"] for trip in trips] == ["round trip"] * 2
    assert [trip["destination"] for trip in trips] == [item.destination for item in subscriptions]
    assert all(trip["seconds"] > 0 and trip["anybody_may_publish"] for trip in trips)
    notes = "\n".join(document["notes"])
    assert notes.count("anybody may publish") == 2
    assert ("max-delivery-attempts" in notes) is (trips[0]["limit"] != "")
    assert "2 checks" in daemon.log
    assert (stopped.messages, len(row_keys(site))) == (7, 5)


def test_a_check_consumes_nothing_from_a_queue(
    tmp_path: Path, broker: StompServer, name: str
) -> None:
    queue, waiting = f"/queue/q.{name}", numbered("standing", range(3))
    site = site_of(tmp_path, [broker.url], Subscription(queue))
    publish(broker.host, broker.port, queue, waiting)

    code, document = checked(site)

    assert (code, document["problems"]) == (0, [])
    assert ids(received(broker, queue, 3)) == [message.message_id for message in waiting]


OURS = uid_identity(os.getuid())


@pytest.fixture
def site(small_site: Site) -> Site:
    small_site.configure('policy_file = "policy.toml"')
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


def test_a_replay_asks_the_policy_as_it_is_now_and_nothing_is_loaded_while_it_is_invalid(
    site: Site,
) -> None:
    replay = ("dead-letter", "replay", "--all")
    send(site, "ce.example.com")
    site.drain()
    [refused] = site.json(*replay, code=65)
    write_policy(site, "enforced")
    invalid = [site.run(*command).returncode for command in (("run", "--drain"), replay)]
    write_policy(site)
    [allowed] = site.json(*replay)

    assert (refused["outcome"], refused["reason"]) == (FAILED, "not-authorised")
    assert (invalid, allowed["outcome"]) == ([78, 78], LOADED)


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
    site: Site, tmp_path: Path, mode: str, pauses: set[str]
) -> None:
    policy = load_policy(write_policy(site, mode, more="records_per_minute = 2\n"))
    engine = make_engine(site.database)
    sink = sink_into(engine, tmp_path, policy=policy)

    def delivery(broker: str, sender: str, answers: bool = False) -> Delivery:
        message = metric_message(metric_result(), metric_result(metricName="org.sam.B"))
        return Delivery(with_identity(message, sender), FakeSession(broker, answers), None)

    batch = [delivery("spool:///a", OURS), delivery("spool:///b", "uid:99")] * 2
    outcome = sink.load([*batch, delivery("listen+http://c", OURS, answers=True)])
    engine.dispose()

    assert set(outcome.pauses) == pauses


def test_publishers_are_listed_as_json_and_as_a_policy_that_can_be_loaded(
    tmp_path: Path, own_url: str
) -> None:
    site = make_site(tmp_path, own_url, [f"spool://{tmp_path}/spool"])
    good = metric_message(metric_result(monitoringHost="nagios1"))
    site.fill(good, good, metric_message(metric_result(metricStatus="MAYBE")))
    assert site.drain().code == 65
    site.edit(as_role(own_url, "loader"), as_role(own_url, "reader"))

    [publisher] = site.json("sender", "list")
    suggested = tmp_path / "publishers.toml"
    suggested.write_text(site.run("sender", "suggest").stdout)

    [of_class] = publisher.pop("classes")
    assert publisher == {"publisher": OURS, "name": None, "accepted": 2, "refused": 1}
    assert (of_class["class"], of_class["records"]) == ("metricOutput", 1)
    policy = load_policy(suggested)
    [allowed] = policy.publishers
    assert policy.mode == OBSERVE
    assert (allowed.identities, allowed.classes) == ((OURS,), ("metricOutput",))
    assert (allowed.hosts, allowed.monitoring_hosts) == (("ce01.example.org",), ("nagios1",))
