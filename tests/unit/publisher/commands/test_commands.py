"""The command line of sam-publish in this process: what is sent, output and exit codes."""

from __future__ import annotations

import os
import re
import shlex
import time
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.publisher.commands import run as run_command
from sam_pipeline.publisher.probe.input import Found, read_files
from sam_pipeline.schema import times
from sam_pipeline.schema.messages.message import HOST as ORIGIN_HOST
from sam_pipeline.schema.messages.message import PROGRAM, USER
from sam_pipeline.schema.program.command import VERSION
from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.builders import metric_result
from tests.support.invoke import Answer, invoke
from tests.support.publishing import RESULT, TOPIC, dead_url, spooled

SPOOL = "state/spool"
GOOD = write_wlcg(metric_result())
DRY_RUN = ("--broker", "stomp://msg.example.org", "--dry-run")
LOST = "1 of 1 messages were neither"
"""How the report of messages that neither a broker nor the spool took begins."""


def sam_publish(*arguments: str, stdin: str = "", code: int = 0) -> Answer:
    answer = invoke("sam-publish", *arguments, stdin=stdin)
    assert answer.code == code, str(answer)
    return answer


def test_a_result_is_published_with_its_options_and_reported_in_one_line() -> None:
    options = "--status Down --site EXAMPLE --vo ops --details - --gathered-at wn1.example.org"
    when = ("--timestamp", "2026-11-20 10:00:00", "--header", "nagios_host=n1")
    with FakeBroker() as broker:
        where = ("--broker", broker.url)
        answer = sam_publish(*RESULT, *options.split(), *when, *where, stdin="a\nb\n")

    (line,), (frame,) = answer.out.splitlines(), broker.taken
    assert line.startswith(f"published {broker.ids[0]} ")
    assert all(fact in line for fact in ("metricOutput, 1 record", broker.url, TOPIC))
    assert answer.err == ""
    body = frame.body.decode()
    for value in ("metricStatus: CRITICAL", "gatheredAt: wn1.example.org", "siteName: EXAMPLE"):
        assert f"{value}\n" in body
    assert "timestamp: 2026-11-20T10:00:00Z\n" in body
    assert body.endswith("detailsData: a\nb\nEOT\n")
    assert frame.headers["nagios_host"] == "n1"


@pytest.mark.parametrize(
    ("options", "code", "out"),
    [
        ("", 0, "spooled "),
        ("--require-broker", 75, "spooled "),
        ("--no-spool", 69, ""),
        ("--json", 0, "{"),
    ],
)
def test_what_becomes_of_a_result_without_a_broker(options: str, code: int, out: str) -> None:
    answer = sam_publish(*RESULT, "--broker", dead_url(), *options.split(), code=code)

    assert answer.out.startswith(out)
    assert ("connection refused" if out else LOST) in answer.err
    assert len(spooled(SPOOL)) == bool(out)


def test_a_result_that_a_broker_rejects_is_spooled_with_exit_code_65() -> None:
    with FakeBroker(rejects=lambda frame: "access refused") as broker:
        answer = sam_publish(*RESULT, "--broker", broker.url, "--json", code=65)

    (rejected,) = answer.json["rejected"]
    assert (rejected["broker"], rejected["reason"]) == (broker.url, "access refused")
    assert spooled(SPOOL) == [rejected["message_id"]]


def test_backslashes_are_unescaped_only_in_details_from_nagios() -> None:
    texts = ("--details", r"C:\new\\n\\\nend", "--summary", r"in C:\new")

    plain = sam_publish(*RESULT, *texts, *DRY_RUN).out
    nagios = sam_publish(*RESULT, *texts, *DRY_RUN, "--from-nagios").out

    assert "detailsData: C:\\new\\\\n\\\\\\nend\nEOT" in plain
    assert "detailsData: C:\new\\n\\\nend\nEOT" in nagios
    assert "summaryData: in C:\\new\n" in nagios


HEADERS = ("priority", "ack", "JMSXUserID", "_AMQ_DUPL_ID", "messageClass", "a b", "a:b")


@pytest.mark.parametrize(
    ("line", "code", "stem"),
    [
        ("run check_load -w 9 -c 12", 64, " -- PLUGIN"),
        ("--broker stomp://a result", 64, "sam-publish result --broker"),
        ("result --metric m --status OK --host h --flavor CE", 64, "did you mean --flavour?"),
        ("result --status OK --host h --flavour CE", 64, "--metric"),
        ("reslt", 64, "did you mean result?"),
        ("RESULT --timeout 0", 64, "--timeout"),
        *((f"RESULT --header '{name}=1'", 64, "--header") for name in HEADERS),
        *((f"RESULT --header {name}=x", 64, "is set by") for name in (ORIGIN_HOST, PROGRAM, USER)),
        ("RESULT --status FINE", 65, "metricStatus 'FINE'"),
        ("RESULT --destination /topics/x", 65, "did you mean /topic/x?"),
        ("RESULT --destination /topic/site.*", 65, "wildcard"),
        ("RESULT --timestamp 2038-01-19T03:14:07Z", 65, "2038-01-19T03:14:07Z"),
        ("send", 65, "<stdin>:1: record refused, empty: "),
        ("send good missing", 66, "missing: no such file"),
        ("passive --fifo f --json", 64, "--fifo"),
        ("key add 'a b'", 64, "name"),
        ("key show", 64, "signing_key_file"),
        ("key show missing.pem", 78, "missing.pem"),
        ("key add a --directory missing", 78, "missing"),
    ],
)
def test_a_call_that_can_not_work_says_why(line: str, code: int, stem: str) -> None:
    Path("good").write_text(GOOD)

    answer = sam_publish(*shlex.split(line.replace("RESULT", " ".join(RESULT))), code=code)

    assert stem in answer.err
    assert (answer.out, spooled(SPOOL), Path("f").exists()) == ("", [], False)


def test_nothing_is_confirmed_before_the_clock_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("good").write_text(GOOD)
    monkeypatch.setattr(times, "NOT_BEFORE", datetime(9000, 1, 1, tzinfo=UTC))

    for command in (RESULT, ("send", "good")):
        assert "the clock of this host shows 20" in sam_publish(*command, code=69).err
    assert spooled(SPOOL) == []


def test_send_raw_publishes_the_bytes_unchanged_unless_they_are_too_many() -> None:
    Path("bytes").write_bytes(b"\xff no record\r\n")
    sizes = {"large": 5_000_000, "huge": 300_000_000}
    for name, size in sizes.items():
        with Path(name).open("wb") as file:
            file.truncate(size)
    raw = ("send", "--raw", "--class", "other", "bytes", "large", "huge")

    with FakeBroker() as broker:
        answer = sam_publish(*raw, "--broker", broker.url, code=65)

    (frame,) = broker.taken
    assert frame.body == b"\xff no record\r\n"
    assert frame.headers["destination"] == "/topic/grid.probe.other"
    for name, size in sizes.items():
        assert re.search(rf"{name}:1: record refused, too-large: .*{size}", answer.err)
    assert spooled(SPOOL) == []


def test_the_json_document_lists_messages_refusals_and_unavailable_brokers() -> None:
    dead = dead_url()
    with FakeBroker() as broker:
        urls = ("--broker", dead, "--broker", broker.url)
        document = sam_publish("send", "--json", *urls, stdin=GOOD + "bad\nEOT\n", code=65).json

    (message,) = document["messages"]
    assert message["message_id"] == broker.ids[0]
    assert (message["outcome"], message["place"]) == ("published", broker.url)
    assert document["refused_records"][0]["reason"] == "no-key"
    (unavailable,) = document["unavailable"]
    assert (unavailable["broker"], unavailable["reason"]) == (dead, "connection refused")


def test_all_messages_of_a_call_share_its_time_limit() -> None:
    for name in ("a", "b"):  # too much for one batch
        Path(name).write_bytes(b"x" * 3_000_000)

    with FakeBroker(mute=True) as broker:
        options = ("--broker", broker.url, "--require-broker", "--timeout", "0.5")
        sam_publish("send", "--raw", "a", "b", *options, code=75)

    assert broker.connections == 1  # for the second batch no time was left
    assert len(spooled(SPOOL)) == 2


def test_time_spent_reading_does_not_count_as_publishing(monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(*arguments: Any) -> Iterator[Found]:
        time.sleep(0.6)
        yield from read_files(*arguments)

    monkeypatch.setattr("sam_pipeline.publisher.commands.send.read_files", slowly)
    with FakeBroker() as broker:
        sam_publish("send", "--broker", broker.url, "--timeout", "0.5", stdin=GOOD)

    assert len(broker.taken) == 1


@pytest.mark.parametrize("command", [RESULT, ("send",), ("send", "--raw"), ("passive",)])
def test_each_command_names_itself_as_origin(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("LOGNAME", "nagios")
    line = f"[{int(time.time())}] PROCESS_HOST_CHECK_RESULT;ce01;0;OK\n"

    sam_publish(*command, stdin=line if command == ("passive",) else GOOD)

    queue = DirectoryQueue(Path(SPOOL))
    (headers,) = [queue.read(name).headers for name in queue.names()]
    assert headers[ORIGIN_HOST] == os.uname().nodename
    assert headers[PROGRAM] == f"sam-publish/{VERSION} {command[0]}"
    assert headers[USER] == "nagios"


@pytest.mark.parametrize(
    ("url", "start"),
    [
        ("stomp://msg.example.org", "SEND\n"),
        ("activemq-rest+https://sam@msg.example.org", "POST /api/message/"),
        ("rabbitmq-api+https://sam@msg.example.org/v/x", "POST /api/exchanges/v/x/publish"),
        ("ams+https://msg.example.org/v1/projects/p", "POST /v1/projects/p/topics/"),
        ("sam+https://door.example.org", "POST /v1/messages HTTP/1.1"),
        ("spool:///nowhere", "{"),
    ],
)
def test_a_dry_run_shows_the_frame_or_request_of_every_kind_of_broker_and_sends_nothing(
    monkeypatch: pytest.MonkeyPatch, url: str, start: str
) -> None:
    monkeypatch.setenv("SAM_PUBLISHER_PASSWORD", "canary")
    monkeypatch.setenv("SAM_PUBLISHER_TOKEN", "canary")

    answer = sam_publish(*RESULT, "--broker", url, "--dry-run", "--header", "x=a:b")

    assert answer.err == ""
    assert answer.out.startswith(start)
    assert not any(text in answer.out for text in ("canary", b64encode(b"sam:canary").decode()))
    assert spooled(SPOOL) == []
    if start == "SEND\n":
        head, _, body = answer.out.partition("\n\n")
        assert f"destination:{TOPIC}\n" in head and "x:a\\cb" in head
        assert body.endswith("EOT\n\0\n")


@pytest.mark.parametrize("job", ["_CONDOR_SCRATCH_DIR", "SLURM_TMPDIR", "TMPDIR SLURM_JOB_ID"])
def test_a_batch_job_gets_no_default_spool_in_its_scratch_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, job: str
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # outside of a job this is an ordinary directory
    sam_publish(*RESULT)
    for name in job.split():
        monkeypatch.setenv(name, "7" if name.endswith("_ID") else str(tmp_path))

    answer = sam_publish(*RESULT, "--broker", dead_url(), code=75)

    assert (answer.out, answer.err.count("no spool: ")) == ("", 1)
    assert f"spool is below ${job.split()[0]}" in answer.err and LOST in answer.err
    assert len(spooled(SPOOL)) == 1
    monkeypatch.setenv("SAM_PUBLISHER_SPOOL", str(tmp_path / "chosen"))
    sam_publish(*RESULT, "--broker", dead_url())
    assert len(spooled("chosen")) == 1


def test_a_backlog_that_takes_too_long_is_left_to_the_next_calls_and_no_broker_is_blamed() -> None:
    for _ in range(2):
        sam_publish(*RESULT)

    with FakeBroker(freezes_after=1) as broker:
        answer = sam_publish(*RESULT, "--broker", broker.url, "--timeout", "3")

    assert answer.out.startswith("published")
    assert "0 of 2 spooled messages" in answer.err and "next calls" in answer.err
    assert "could not drain" not in answer.err
    assert len(spooled(SPOOL)) == 2


def test_the_spool_may_be_left_alone() -> None:
    sam_publish(*RESULT)

    with FakeBroker() as broker:
        sam_publish(*RESULT, "--broker", broker.url, "--no-drain")
        assert len(spooled(SPOOL)) == 1
        sam_publish(*RESULT, "--broker", broker.url)

    assert (len(broker.taken), spooled(SPOOL)) == (3, [])


def test_run_does_not_wait_for_a_reader_that_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_command, "READER_PATIENCE_S", 0.1)
    reading, writing = os.pipe()
    with open(reading, "rb"), open(writing, "w") as output:
        pass_on = run_command.pass_on_to(output, "output")
        for _ in range(50):
            pass_on(b"x" * 1_000_000)  # would wait for ever

        os.set_blocking(reading, False)
        assert 0 < len(os.read(reading, 1_000_000)) < 1_000_000
