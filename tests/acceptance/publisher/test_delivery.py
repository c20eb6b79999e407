"""How the installed command delivers: after a wrong password, and with a backlog in the spool."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sam_pipeline.schema.records.text import Record, write_wlcg
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker, closed_port, wait_for
from tests.support.builders import metric_result
from tests.support.commands import PROGRAMS, RESULT, Answer, Workplace


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(
        tmp_path,
        broker=f"stomp://127.0.0.1:{closed_port()}",
        database="sqlite://",
        environment={"SAM_PUBLISHER_TIMEOUT_S": "5"},
    ).write_configuration()


def publish(place: Workplace, *options: str) -> Answer:
    return place.succeed(*RESULT, *options)


def test_a_corrected_password_is_tried_at_once(place: Workplace) -> None:
    def publish_with(password: str, *options: str) -> Answer:
        secret = {"SAM_PUBLISHER_PASSWORD": password, **place.environment}
        return publish(replace(place, environment=secret), "--broker", url, *options)

    with FakeBroker(refuses_login="password is invalid") as broker:
        url = broker.url.replace("//", "//probe@")
        publish_with("wrong")
        broker.refuses_login = ""
        again = publish_with("wrong")
        corrected = publish_with("right", "--no-drain")

        assert [login.headers["passcode"] for login in broker.logins] == ["wrong", "right"]
    assert "left out" in again.err
    assert corrected.out.startswith("published")


def test_a_backlog_takes_a_fifth_of_the_time_limit_and_no_broker_is_blamed_for_that(
    place: Workplace,
) -> None:
    for _ in range(2):
        publish(place)

    with FakeBroker(freezes_after=1) as broker:
        answer = publish(place, "--broker", broker.url, "--timeout", "3")

    assert answer.out.startswith("published")
    assert "0 of 2 spooled messages" in answer.err
    assert "next calls" in answer.err
    assert "could not drain" not in answer.err
    assert place.spooled("outbox") == 2


@pytest.mark.parametrize("setting", ["option", "key"])
def test_the_spool_may_be_left_alone(place: Workplace, setting: str) -> None:
    publish(place)

    with FakeBroker() as broker:
        if setting == "option":
            publish(place, "--broker", broker.url, "--no-drain")
        else:
            environment = {**place.environment, "SAM_PUBLISHER_DRAIN": "false"}
            publish(replace(place, environment=environment), "--broker", broker.url)
        left = place.spooled("outbox")
        publish(place, "--broker", broker.url)

        assert len(broker.taken) == 3
    assert (left, place.spooled("outbox")) == (1, 0)


@contextmanager
def started(place: Workplace, *command: str) -> Iterator[subprocess.Popen[str]]:
    """`sam-publish` with pipes; its outputs are read by `communicate`."""
    process = subprocess.Popen(
        [str(PROGRAMS / "sam-publish"), *command],
        cwd=place.directory,
        env=place.clean_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=0,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin
    process.stdin.write(text)
    process.stdin.flush()


def as_text(record: Record) -> str:
    return write_wlcg(record)


def as_line(record: Record) -> str:
    return json.dumps(record) + "\n"


@pytest.mark.parametrize("write", [as_text, as_line])
def test_records_from_a_pipe_are_published_while_it_is_open(
    place: Workplace, write: Callable[[Record], str]
) -> None:
    with (
        FakeBroker() as broker,
        started(place, "send", "--broker", broker.url, "--flush-s", "0.1") as process,
    ):
        first, second = write(metric_result()), write(metric_result(hostName="ce02"))
        say(process, first + second[:20])
        wait_for(lambda: len(broker.taken) == 1)
        say(process, second[20:])
        wait_for(lambda: len(broker.taken) == 2)
        out, err = process.communicate(timeout=20)

        assert broker.connections == 1
    assert (process.returncode, err) == (0, "")
    assert out.count("published") == 2
    assert [b"ce02" in frame.body for frame in broker.taken] == [False, True]


def test_a_terminated_send_spools_what_it_has_read_and_names_half_a_record(
    place: Workplace,
) -> None:
    record = write_wlcg(metric_result())
    with started(place, "send", "--flush-s", "60") as process:
        say(process, record + record + record[:-6])
        wait_for(lambda: unread_bytes(process) == 0)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)

    assert process.returncode == 143
    assert out.startswith("spooled")
    assert f"<stdin>:{2 * record.count(chr(10)) + 1}: record refused, truncated" in err
    assert "terminated: 0 messages published, 1 spooled" in err
    queue = DirectoryQueue(place.directory / "outbox")
    assert [queue.read(name).record_count for name in queue.names()] == [2]


def unread_bytes(process: subprocess.Popen[str]) -> int:
    """The bytes in the pipe to the process."""
    assert process.stdin
    return int.from_bytes(fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.mark.parametrize("command", [" ".join(RESULT[1:]), "send", "send --raw"])
def test_a_terminated_call_spools_what_a_silent_broker_has_not_confirmed(
    place: Workplace, command: str
) -> None:
    with (
        FakeBroker(mute=True) as broker,
        started(place, *command.split(), "--broker", broker.url, "--timeout", "60") as process,
    ):
        if command.startswith("send"):
            say(process, write_wlcg(metric_result()))
            assert process.stdin
            process.stdin.close()
        wait_for(lambda: broker.connections == 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 143
        assert process.stdout and process.stderr
        out, err = process.stdout.read(), process.stderr.read()

    assert out.startswith("spooled")
    assert "terminated: 0 messages published, 1 spooled" in err
    assert place.spooled("outbox") == 1
