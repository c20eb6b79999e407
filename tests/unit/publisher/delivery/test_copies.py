"""Two sets of brokers: each gets every message once, and neither waits for the other."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sam_pipeline.publisher import NoBrokerTookIt, Publisher, PublisherConfig, publish
from sam_pipeline.publisher.cli import main
from sam_pipeline.publisher.delivery.copies import GRACE_S
from sam_pipeline.publisher.delivery.publish import courier_for
from sam_pipeline.publisher.settings.load import load_config
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker, closed_port, wait_for
from tests.support.builders import metric_message

TIMEOUT_S = 1.0
SLACK_S = 0.7
"""What a loaded machine may add to a deadline."""
RESULT = ("result", "--metric", "a.b", "--status", "OK", "--host", "h", "--flavour", "F")
RECORD = {"metricName": "a.b", "metricStatus": 0, "hostName": "h", "serviceFlavour": "F"}
SPOOL, SPOOL_OF_COPY = Path("state/spool"), Path("state/copies/region/spool")


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith("SAM_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def configured(*main: str, copy: tuple[str, ...], section: str = "", more: str = "") -> None:
    Path("sam.toml").write_text(
        f"[publisher]\nbrokers = {json.dumps(main)}\ntimeout_s = {TIMEOUT_S}\n{section}\n"
        f'[[publisher.copy]]\nname = "region"\nbrokers = {json.dumps(copy)}\n{more}\n'
    )


def loaded() -> PublisherConfig:
    return load_config(None, {})


def dead_url() -> str:
    return f"stomp://127.0.0.1:{closed_port()}"


def spooled(path: Path) -> list[str]:
    queue = DirectoryQueue(path)
    return [queue.read(name).message_id for name in queue.names()] if path.exists() else []


@contextmanager
def two_brokers(**of_the_second: object) -> Iterator[tuple[FakeBroker, FakeBroker]]:
    with FakeBroker() as one, FakeBroker(**of_the_second) as other:  # type: ignore[arg-type]
        yield one, other


def test_both_sets_of_brokers_get_each_message_with_the_same_id() -> None:
    messages = [metric_message() for _ in range(5)]
    with two_brokers() as (one, other):
        configured(one.url, copy=(other.url,))
        publication = publish(messages, loaded())

    ids = [message.message_id for message in messages]
    assert one.ids == other.ids == ids
    ((name, of_copy),) = publication.copies
    assert name == "region"
    assert [len(publication.receipts), len(of_copy.receipts)] == [5, 5]


@pytest.mark.parametrize("down", ["copy", "section"])
def test_a_set_that_hangs_neither_delays_nor_duplicates_the_other(down: str) -> None:
    message = metric_message()
    arrived_after: list[float] = []
    with two_brokers(mute=True) as (one, hanging):
        urls = (one.url, hanging.url) if down == "copy" else (hanging.url, one.url)
        configured(urls[0], copy=urls[1:])
        started = time.monotonic()
        watch = threading.Thread(
            target=lambda: (
                wait_for(lambda: bool(one.taken)),
                arrived_after.append(time.monotonic() - started),
            )
        )
        watch.start()
        publication = publish([message], loaded())
        elapsed_s = time.monotonic() - started
        watch.join()

    assert one.ids == [message.message_id]
    assert arrived_after[0] < TIMEOUT_S / 2
    assert elapsed_s < TIMEOUT_S + GRACE_S + SLACK_S
    there, elsewhere = (SPOOL_OF_COPY, SPOOL) if down == "copy" else (SPOOL, SPOOL_OF_COPY)
    assert spooled(there) == [message.message_id]
    assert spooled(elsewhere) == []
    assert len(publication.spooled) == (down == "section")


def test_each_set_drains_its_own_spool() -> None:
    first, second = metric_message(), metric_message()
    with two_brokers() as (one, other):
        configured(one.url, copy=(dead_url(),))
        publish([first], loaded())
        assert spooled(SPOOL_OF_COPY) == [first.message_id]

        configured(one.url, copy=(other.url,))
        publication = publish([second], loaded())

    assert one.ids == [first.message_id, second.message_id]
    assert sorted(other.ids) == sorted([first.message_id, second.message_id])
    assert publication.drained == 1
    assert spooled(SPOOL_OF_COPY) == []


def test_each_set_has_a_memory_of_its_own() -> None:
    with FakeBroker() as broker:
        configured(broker.url, copy=(dead_url(),))
        publish([metric_message()], loaded())

    memory = Path("state/brokers.json")
    of_copy = json.loads(Path("state/copies/region/brokers.json").read_text())
    assert [fact["failures"] for fact in of_copy.values()] == [1]
    assert not memory.exists() or "failures" not in memory.read_text()


def test_a_message_is_lost_if_one_set_lost_it_and_the_error_names_the_copy() -> None:
    message = metric_message()
    with FakeBroker() as broker:
        configured(broker.url, copy=(dead_url(),), more='spool = "/dev/null/spool"')
        with pytest.raises(NoBrokerTookIt, match=r"^copy region: 1 of 1 messages") as caught:
            publish([message], loaded())

    assert broker.ids == [message.message_id]
    assert [lost.message_id for lost in caught.value.missing] == [message.message_id]
    assert len(caught.value.publication.receipts) == 1


def test_both_losses_are_reported() -> None:
    configured(
        dead_url(),
        copy=(dead_url(),),
        section='spool = "/dev/null/a"',
        more='spool = "/dev/null/b"',
    )

    with pytest.raises(NoBrokerTookIt) as caught:
        publish([metric_message()], loaded())

    assert "/dev/null/a" in str(caught.value)
    assert "copy region: 1 of 1" in str(caught.value)


def test_the_copy_never_gets_a_credential_of_the_section(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAM_PUBLISHER_PASSWORD", "canary")
    own = Path("own")
    own.write_text("of-the-copy\n")
    own.chmod(0o600)
    with two_brokers() as (one, other):
        configured(one.url, copy=(other.url,), section='user = "sam"')
        publish([metric_message()], loaded())
        more = 'user = "region"\npassword_file = "own"'
        configured(one.url, copy=(other.url,), section='user = "sam"', more=more)
        publish([metric_message()], loaded())

    logins = [[login.headers.get(n) for n in ("login", "passcode")] for login in other.logins]
    assert logins == [[None, None], ["region", "of-the-copy"]]
    assert {login.headers["passcode"] for login in one.logins} == {"canary"}


def test_a_table_of_the_copy_describes_its_broker() -> None:
    with two_brokers() as (one, other):
        table = (
            f'[[publisher.copy.broker]]\nurl = "{other.url}"\nvhost = "region"\n'
            'destinations = { metricOutput = "/topic/region.results" }'
        )
        configured(one.url, copy=(), more=table)
        publish([metric_message(destination="/topic/grid.probe.metricOutput")], loaded())

    assert [login.headers["host"] for login in other.logins] == ["region"]
    assert [frame.headers["destination"] for frame in other.taken] == ["/topic/region.results"]
    assert [frame.headers["destination"] for frame in one.taken] == [
        "/topic/grid.probe.metricOutput"
    ]


def test_a_copy_has_a_destination_of_its_own_unless_an_option_names_one() -> None:
    with two_brokers() as (one, other):
        configured(one.url, copy=(other.url,), more='destination = "/topic/region"')
        assert main([*RESULT]) == 0
        assert main([*RESULT, "--destination", "/topic/x"]) == 0
        publish([metric_message(destination="/topic/own")], loaded())

    default = "/topic/grid.probe.metricOutput"
    assert [f.headers["destination"] for f in one.taken] == [default, "/topic/x", "/topic/own"]
    assert [f.headers["destination"] for f in other.taken] == [
        *("/topic/region", "/topic/x", "/topic/own")
    ]


def test_brokers_of_the_command_line_get_no_copies() -> None:
    with two_brokers() as (one, other):
        configured(dead_url(), copy=(other.url,))
        assert main([*RESULT, "--broker", one.url]) == 0
        with Publisher(brokers=[one.url]) as publisher:
            publisher.add(RECORD)

    assert len(one.taken) == 2
    assert other.taken == []


def test_the_report_has_a_line_for_each_set(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker() as broker:
        configured(broker.url, copy=(dead_url(),))
        assert main([*RESULT]) == 0
        text = capsys.readouterr().out.splitlines()
        assert main([*RESULT, "--require-broker"]) == 75
        capsys.readouterr()
        assert main([*RESULT, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)

    published, in_spool = text
    assert published.startswith("published ")
    assert in_spool.startswith("spooled ")
    assert in_spool.endswith("(copy region)")
    outcomes = [(item["copy"], item["outcome"]) for item in document["messages"]]
    assert outcomes == [(None, "published"), ("region", "spooled")]
    assert [item["copy"] for item in document["unavailable"]] == ["region"]


def test_a_loss_of_the_copy_is_the_exit_code_and_the_section_gets_all_records(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("records").write_text("".join(_text(number) for number in range(30)))
    with FakeBroker() as broker:
        configured(broker.url, copy=(dead_url(),), more='spool = "/dev/null/spool"')
        code = main(["send", "--one-per-message", "records"])
        errors = capsys.readouterr().err

    assert code not in (0, 70)
    assert "copy region: 30 of 30 messages were neither published nor spooled" in errors
    assert len(set(broker.ids)) == 30


def test_after_sigterm_no_copy_is_waited_for(capfd: pytest.CaptureFixture[str]) -> None:
    with two_brokers(mute=True) as (one, hanging):
        configured(one.url, copy=(hanging.url,), section="")
        text = Path("sam.toml").read_text().replace(f"timeout_s = {TIMEOUT_S}", "timeout_s = 30")
        Path("sam.toml").write_text(text)
        started = time.monotonic()
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
        code = main([*RESULT])

    assert code == 143
    assert time.monotonic() - started < 10
    assert len(spooled(SPOOL_OF_COPY)) == 1
    assert spooled(SPOOL_OF_COPY) == one.ids
    errors = capfd.readouterr().err
    assert "copy region: 0 messages published, 1 spooled" in errors


def test_a_dropped_publisher_spools_for_each_set() -> None:
    configured(dead_url(), copy=(dead_url(),))
    publisher = Publisher()
    publisher.add(RECORD)
    del publisher

    assert len(spooled(SPOOL)) == 1
    assert spooled(SPOOL) == spooled(SPOOL_OF_COPY)


def test_the_library_publishes_to_each_set() -> None:
    with two_brokers() as (one, other):
        configured(one.url, copy=(other.url,))
        with Publisher() as publisher:
            for _ in range(250):
                publisher.add(RECORD)

    assert len(one.ids) == 3
    assert one.ids == other.ids
    assert [name for name, _ in publisher.last.copies] == ["region"]


def test_a_dry_run_shows_the_frame_of_each_set(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    configured(
        "stomp://a.example.org", copy=("stomp://b.example.org",), more='destination = "/queue/r"'
    )

    assert main([*RESULT, "--dry-run"]) == 0

    out = capfdbinary.readouterr().out
    assert out.count(b"SEND\n") == 2
    assert b"destination:/queue/r\n" in out


@pytest.mark.parametrize(
    ("more", "stem"),
    [
        ('[[publisher.copy]]\nname = "x"', "x: brokers is missing"),
        ('[[publisher.copy]]\nname = "region"\nbrokers = ["stomp://a"]', "appears twice"),
        ('[[publisher.copy]]\nname = "a/b"\nbrokers = ["stomp://a"]', "expected letters, digits"),
        ('spol = "x"', "copy[1] unknown key spol (did you mean spool?)"),
        ('spool = "state/spool"', "is the spool of [publisher], too"),
        ('user = "x"\nbrokers = ["stomp://a.example.org"]', "would be sent in plain text"),
    ],
)
def test_problems_of_copies_are_reported(more: str, stem: str) -> None:
    own = "" if "brokers = " in more and more.startswith("user") else 'brokers = ["stomp://b"]\n'
    Path("sam.toml").write_text(f'[publisher]\n[[publisher.copy]]\nname = "region"\n{own}{more}\n')

    with pytest.raises(ConfigError) as caught:
        loaded()

    assert any(stem in problem for problem in caught.value.problems), caught.value.problems


def _text(number: int) -> str:
    return (
        f"hostName: h{number}\nserviceFlavour: F\nmetricName: a.b\nmetricStatus: OK\n"
        "timestamp: 2026-11-20T12:00:00Z\nEOT\n"
    )


def test_signatures_are_made_for_each_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["key", "make", "nagios1"]) == 0
    Path("records").write_text(_text(1))
    with two_brokers() as (one, other):
        configured(
            one.url,
            copy=(other.url,),
            section='signing_key_file = "nagios1.pem"',
            more='destination = "/topic/region"',
        )
        assert main(["send", "records"]) == 0

    (first,), (second,) = one.taken, other.taken
    assert first.headers["samMessageId"] == second.headers["samMessageId"]
    assert first.headers["samKey"] == second.headers["samKey"] == "nagios1"
    assert first.headers["samSignature"] != second.headers["samSignature"]


def test_a_message_that_is_sent_again_after_a_loss_is_the_original() -> None:
    message = Message({"messageClass": "metricOutput", "samMessageId": "1"}, b"x")
    configured(dead_url(), copy=(dead_url(),), more='spool = "/dev/null/spool"')

    with pytest.raises(NoBrokerTookIt) as caught:
        publish([message], loaded())

    assert caught.value.missing == (message,)


def test_messages_that_one_set_lost_are_sent_again_to_that_set_alone() -> None:
    messages = [metric_message() for _ in range(3)]
    with two_brokers() as (one, other):
        configured(one.url, copy=(other.url,), more='spool = "/dev/null/spool"')
        config = loaded()
        lossy = config._replace(copy=tuple(t._replace(brokers=(dead_url(),)) for t in config.copy))
        with courier_for(lossy) as courier:
            with pytest.raises(NoBrokerTookIt) as caught:
                courier.deliver(messages, Deadline.after(TIMEOUT_S))
            with pytest.raises(NoBrokerTookIt):
                courier.deliver(caught.value.missing, Deadline.after(TIMEOUT_S))

    assert one.ids == [message.message_id for message in messages]


def test_the_spool_commands_reach_that_of_a_copy(capsys: pytest.CaptureFixture[str]) -> None:
    configured(dead_url(), copy=(dead_url(),))
    assert main([*RESULT]) == 0
    (in_section,), (in_copy,) = spooled(SPOOL), spooled(SPOOL_OF_COPY)
    capsys.readouterr()

    assert main(["spool", "status", "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert [status["messages"], *(of["messages"] for of in status["copies"])] == [1, 1]
    assert [of["copy"] for of in status["copies"]] == ["region"]

    assert main(["spool", "drop", "--copy", "region", in_copy]) == 0
    assert (spooled(SPOOL), spooled(SPOOL_OF_COPY)) == ([in_section], [])
    assert main(["spool", "list", "--copy", "region", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.partition("\n")[2]) == []


def test_an_unknown_copy_is_a_usage_error_with_the_nearest_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configured(dead_url(), copy=(dead_url(),))

    assert main(["spool", "list", "--copy", "regoin"]) == 64
    assert "did you mean region?" in capsys.readouterr().err


def test_all_spools_are_drained_at_the_same_time(capsys: pytest.CaptureFixture[str]) -> None:
    configured(dead_url(), copy=(dead_url(),))
    assert main([*RESULT]) == 0
    with two_brokers(mute=True) as (one, hanging):
        configured(one.url, copy=(hanging.url,))
        assert main(["spool", "drain"]) == 69  # the copy has not got it
        assert len(one.taken) == 1
        assert len(spooled(SPOOL_OF_COPY)) == 1
        capsys.readouterr()

        configured(one.url, copy=(one.url,))
        Path("state/copies/region/brokers.json").unlink()
        assert main(["spool", "drain", "--json"]) == 0

    assert one.ids[0] == one.ids[1]
    drained = json.loads(capsys.readouterr().out)
    assert [drained["sent"], *(of["sent"] for of in drained["copies"])] == [0, 1]


def test_a_copy_is_drained_to_the_brokers_of_the_command_line() -> None:
    configured(dead_url(), copy=(dead_url(),))
    assert main([*RESULT]) == 0

    with FakeBroker() as broker:
        assert main(["spool", "drain", "--copy", "region", "--broker", broker.url]) == 0

    assert len(broker.taken) == 1
    assert (len(spooled(SPOOL)), spooled(SPOOL_OF_COPY)) == (1, [])


def test_check_covers_copies_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    with two_brokers() as (one, other):
        configured(one.url, copy=(other.url,))
        assert main(["check", "--connect", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert [trip["copy"] for trip in document["brokers"]] == [None, "region"]

    table = f'[[publisher.copy.broker]]\nurl = "{dead_url()}"\n'
    configured(copy=(), more=table + 'ca_file = "sam.toml"')
    assert main(["check", "--connect"]) == 78
    errors = capsys.readouterr().err
    assert "[publisher] copy[1] broker[1] url: stomp://" in errors
