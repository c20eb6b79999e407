"""The command line of sam-publish as a process: output and exit codes."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker, closed_port, wait_for
from tests.support.builders import metric_result

DESTINATION = "/topic/grid.probe.metricOutput"
OK_RESULT = ("result", "--metric", "m", "--status", "OK", "--host", "ce01", "--flavour", "CE")
NO_BROKER = "no broker is configured"
DRY_RUN = ("--broker", "stomp://msg.example.org", "--dry-run")
LOST = "1 of 1 messages were neither"
"""How the report of messages that neither a broker nor the spool took begins."""

Publish = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment without configuration, with its own state directory."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SAM_", "XDG_"))}
    return {**kept, "HOME": str(tmp_path), "STATE_DIRECTORY": str(tmp_path / "state")}


@pytest.fixture
def sam_publish(tmp_path: Path, environment: dict[str, str]) -> Publish:
    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "sam_pipeline.publisher", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=30,
            cwd=tmp_path,
            env=environment,
            check=False,
        )

    return run


@pytest.fixture
def spool(tmp_path: Path) -> DirectoryQueue:
    return DirectoryQueue(tmp_path / "state" / "spool")


def dead_url() -> str:
    return f"stomp://127.0.0.1:{closed_port()}"


def test_a_result_is_published_and_reported_in_one_line(sam_publish: Publish) -> None:
    with FakeBroker() as broker:
        done = sam_publish(*OK_RESULT, "--broker", broker.url)

    assert done.returncode == 0
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"published {broker.ids[0]} ")
    assert all(fact in line for fact in ("metricOutput, 1 record", broker.url, DESTINATION))
    assert done.stderr == ""
    assert b"metricStatus: OK\n" in broker.taken[0].body


def test_a_result_carries_the_values_of_its_options(sam_publish: Publish) -> None:
    options = "--site EXAMPLE --vo ops --summary fine --details - --gathered-at wn1.example.org"
    when = ("--timestamp", "2026-11-20 10:00:00", "--header", "nagios_host=n1")
    with FakeBroker() as broker:
        where = ("--broker", broker.url)
        done = sam_publish(*OK_RESULT, *options.split(), *when, *where, stdin="a\nb\n")

    assert done.returncode == 0
    body = broker.taken[0].body.decode()
    assert "timestamp: 2026-11-20T10:00:00Z\n" in body
    assert "gatheredAt: wn1.example.org\n" in body
    assert "siteName: EXAMPLE\n" in body
    assert body.endswith("detailsData: a\nb\nEOT\n")
    assert broker.taken[0].headers["nagios_host"] == "n1"


def test_a_message_that_no_broker_accepts_is_spooled_with_exit_code_0(
    sam_publish: Publish, spool: DirectoryQueue
) -> None:
    url = dead_url()

    done = sam_publish(*OK_RESULT, "--broker", url)

    assert done.returncode == 0
    assert done.stdout.startswith("spooled ")
    assert f"in {spool.path} for /topic/" in done.stdout
    assert f"{url}: connection refused" in done.stderr
    assert spool.count() == 1


def test_an_unavailable_required_broker_is_exit_code_75(
    sam_publish: Publish, spool: DirectoryQueue
) -> None:
    done = sam_publish(*OK_RESULT, "--broker", dead_url(), "--require-broker")

    assert done.returncode == 75
    assert spool.count() == 1


def test_no_broker_and_no_spool_is_exit_code_69(
    sam_publish: Publish, spool: DirectoryQueue
) -> None:
    done = sam_publish(*OK_RESULT, "--broker", dead_url(), "--no-spool")

    assert done.returncode == 69
    assert LOST in done.stderr
    assert "Traceback" not in done.stderr
    assert spool.count() == 0


def test_no_broker_and_a_file_in_place_of_the_spool_is_exit_code_73(
    sam_publish: Publish, spool: DirectoryQueue
) -> None:
    spool.path.parent.mkdir()
    spool.path.write_text("")

    done = sam_publish(*OK_RESULT, "--broker", dead_url())

    assert done.returncode == 73
    assert LOST in done.stderr
    assert str(spool.path) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bad_status_is_refused(sam_publish: Publish, spool: DirectoryQueue) -> None:
    done = sam_publish(*OK_RESULT, "--status", "FINE")

    assert done.returncode == 65
    assert "metricStatus 'FINE'" in done.stderr
    assert spool.count() == 0


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("UP", "OK"),
        ("Down", "CRITICAL"),
        ("unreachable", "UNKNOWN"),
        ("Ok", "OK"),
        ("1", "WARNING"),
    ],
)
def test_states_of_hosts_are_statuses(sam_publish: Publish, state: str, status: str) -> None:
    done = sam_publish(*OK_RESULT, "--status", state, *DRY_RUN)

    assert done.returncode == 0
    assert f"\nmetricStatus: {status}\n" in done.stdout


def test_backslashes_are_unescaped_only_in_details_from_nagios(sam_publish: Publish) -> None:
    texts = ("--details", r"C:\new\\n\\\nend", "--summary", r"in C:\new")

    plain = sam_publish(*OK_RESULT, *texts, *DRY_RUN)
    nagios = sam_publish(*OK_RESULT, *texts, *DRY_RUN, "--from-nagios")

    assert "detailsData: C:\\new\\\\n\\\\\\nend\nEOT" in plain.stdout
    assert "detailsData: C:\new\\n\\\nend\nEOT" in nagios.stdout
    assert "summaryData: in C:\\new\n" in nagios.stdout


def test_details_from_a_closed_standard_input_are_empty(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    with FakeBroker() as broker:
        arguments = [*OK_RESULT, "--details", "-", "--broker", broker.url]
        line = f"{sys.executable} -m sam_pipeline.publisher {shlex.join(arguments)} <&-"
        subprocess.run(["sh", "-c", line], cwd=tmp_path, env=environment, check=True)

        assert b"detailsData" not in broker.taken[0].body


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("run check_load -w 9 -c 12", " -- PLUGIN"),
        ("--broker stomp://a result", "sam-publish result --broker"),
        ("result --metric m --status OK --host h --flavor CE", "did you mean --flavour?"),
        ("reslt", "did you mean result?"),
    ],
)
def test_a_usage_error_says_what_to_write_instead(
    sam_publish: Publish, line: str, hint: str
) -> None:
    done = sam_publish(*line.split())

    assert done.returncode == 64
    assert hint in done.stderr


def test_send_refuses_a_bad_record_and_publishes_the_others(
    sam_publish: Publish, tmp_path: Path
) -> None:
    good, bad = write_wlcg(metric_result()), "this: is\nno record\nEOT\n"
    (tmp_path / "results.txt").write_text(good + bad + good)

    with FakeBroker() as broker:
        done = sam_publish("send", "results.txt", "--broker", broker.url)

    assert done.returncode == 65
    assert "results.txt:11: record refused" in done.stderr
    assert "(metricOutput, 2 records)" in done.stdout
    assert broker.taken[0].headers["recordCount"] == "2"


def test_send_packs_100_records_per_message_by_default(sam_publish: Publish) -> None:
    records = "".join(write_wlcg(metric_result(hostName=f"h{at}")) for at in range(150))

    with FakeBroker() as packed, FakeBroker() as single:
        sam_publish("send", "--broker", packed.url, stdin=records)
        done = sam_publish("send", "--one-per-message", "--broker", single.url, stdin=records)

    assert [frame.headers["recordCount"] for frame in packed.taken] == ["100", "50"]
    assert len(single.taken) == 150
    assert done.stdout.startswith("published 150 messages (150 records)")
    assert single.url in done.stdout


@pytest.mark.parametrize("is_piped", [False, True])
def test_send_reads_json_lines_and_gzip_from_files_and_pipes(
    is_piped: bool, tmp_path: Path, environment: dict[str, str]
) -> None:
    lines = "".join(f"{json.dumps(metric_result(hostName=f'h{at}'))}\n" for at in range(150))
    halves = [half.encode() for half in (lines[: len(lines) // 2], lines[len(lines) // 2 :])]
    packed = b"".join(map(gzip.compress, halves))
    (tmp_path / "results.jsonl").write_text(lines)
    (tmp_path / "results.jsonl.gz").write_bytes(packed)
    source = "cat {} | SEND" if is_piped else "SEND {}"

    for name in ("results.jsonl", "results.jsonl.gz"):
        with FakeBroker() as broker:
            send = f"{sys.executable} -m sam_pipeline.publisher send --broker {broker.url}"
            line = source.replace("SEND", send).format(name)
            subprocess.run(["sh", "-c", line], cwd=tmp_path, env=environment, check=True)

            assert [frame.headers["recordCount"] for frame in broker.taken] == ["100", "50"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_send_of_a_truncated_gzip_publishes_the_complete_records_and_reports_the_rest(
    sam_publish: Publish, tmp_path: Path, form: str
) -> None:
    results = [metric_result(hostName=f"h{at}") for at in range(150)]
    write = write_wlcg if form == "text" else lambda result: f"{json.dumps(result)}\n"
    texts = [write(result) for result in results]
    (tmp_path / "results.gz").write_bytes(gzip.compress("".join(texts).encode())[:-60])

    with FakeBroker() as broker:
        done = sam_publish("send", "results.gz", "--broker", broker.url)

        sent = sum(int(frame.headers["recordCount"]) for frame in broker.taken)
    assert done.returncode == 65
    assert 100 < sent < 150
    [line] = done.stderr.splitlines()
    first_line = "".join(texts[:sent]).count("\n") + 1
    assert line.startswith(f"sam-publish: error: results.gz:{first_line}: record refused, ")
    assert re.search(r"gzip .* after \d+ bytes", line)


def test_send_of_an_empty_input_is_refused(sam_publish: Publish, spool: DirectoryQueue) -> None:
    done = sam_publish("send", stdin="")

    assert done.returncode == 65
    (line,) = done.stderr.splitlines()
    assert line.startswith("sam-publish: error: <stdin>:1: record refused, empty: ")
    assert spool.count() == 0


def test_send_of_a_missing_file_sends_nothing(
    sam_publish: Publish, tmp_path: Path, spool: DirectoryQueue
) -> None:
    (tmp_path / "there.txt").write_text(write_wlcg(metric_result()))

    done = sam_publish("send", "there.txt", "missing.txt")

    assert done.returncode == 66
    (line,) = done.stderr.splitlines()
    assert line.startswith("sam-publish: error: missing.txt: no such file")
    assert spool.count() == 0


def test_send_raw_publishes_the_bytes_unchanged(sam_publish: Publish, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff no record\r\n")

    with FakeBroker() as broker:
        done = sam_publish("send", "--raw", "bytes", "--class", "other", "--broker", broker.url)

    assert done.returncode == 0
    assert broker.taken[0].body == b"\xff no record\r\n"
    assert broker.taken[0].headers["destination"] == "/topic/grid.probe.other"


def test_a_dry_run_prints_the_frame_that_would_be_sent_and_sends_nothing(
    sam_publish: Publish, spool: DirectoryQueue
) -> None:
    fixed = ("--timestamp", "2026-11-20T10:00:00Z", "--gathered-at", "wn1", "--header", "x=a:b")
    with FakeBroker() as broker:
        done = sam_publish(*OK_RESULT, *fixed, "--broker", broker.url, "--dry-run")

        assert broker.connections == 0
    assert done.returncode == 0
    assert spool.count() == 0
    head, _, body = done.stdout.partition("\n\n")
    assert head.startswith("SEND\n")
    assert "destination:/topic/grid.probe.metricOutput\n" in head
    assert "x:a\\cb" in head
    assert body.endswith("EOT\n\0\n")


@pytest.mark.parametrize(
    "name", ["priority", "ack", "JMSXUserID", "_AMQ_DUPL_ID", "messageClass", "a b", "a:b"]
)
def test_a_reserved_or_invalid_header_is_a_usage_error(sam_publish: Publish, name: str) -> None:
    done = sam_publish(*OK_RESULT, "--header", f"{name}=1")

    assert done.returncode == 64
    assert "--header" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [("--broker", "ftp://x"), ("--timeout", "0"), ("--timeout", "soon"), ("--nonsense",)],
)
def test_a_bad_option_is_a_usage_error(sam_publish: Publish, arguments: tuple[str, ...]) -> None:
    assert sam_publish(*OK_RESULT, *arguments).returncode == 64


def test_the_json_document_lists_messages_refusals_and_unavailable_brokers(
    sam_publish: Publish,
) -> None:
    record = write_wlcg(metric_result())
    dead = dead_url()
    with FakeBroker() as broker:
        done = sam_publish(
            "send", "--json", "--broker", dead, "--broker", broker.url, stdin=record + "bad\nEOT\n"
        )

    document = json.loads(done.stdout)
    (message,) = document["messages"]
    assert message["message_id"] == broker.ids[0]
    assert (message["outcome"], message["place"]) == ("published", broker.url)
    assert document["refused_records"][0]["reason"] == "no-key"
    assert document["unavailable"] == [
        {"broker": dead, "reason": "connection refused", "copy": None}
    ]


def test_the_configuration_names_brokers_class_and_destination(
    sam_publish: Publish, tmp_path: Path
) -> None:
    with FakeBroker() as broker:
        (tmp_path / "sam.toml").write_text(
            f'[publisher]\nbrokers = ["{broker.url}"]\nclass = "myClass"\n'
            'destination = "/queue/mine"\nspool = "here"\ntimeout_s = 3\n'
        )
        done = sam_publish("send", stdin="key: value\nEOT\n")

    assert done.returncode == 0
    assert broker.taken[0].headers["messageClass"] == "myClass"
    assert broker.taken[0].headers["destination"] == "/queue/mine"


def test_an_unknown_key_of_the_configuration_is_exit_code_78(
    sam_publish: Publish, tmp_path: Path
) -> None:
    (tmp_path / "sam.toml").write_text('[publisher]\nbroker = ["stomp://a"]\ntimeout_s = -1\n')

    done = sam_publish(*OK_RESULT)

    assert done.returncode == 78
    assert "did you mean brokers?" in done.stderr
    assert "timeout_s: " in done.stderr
    assert "not -1" in done.stderr


def test_spool_status_reports_number_size_and_age(
    sam_publish: Publish, spool: DirectoryQueue
) -> None:
    empty = json.loads(sam_publish("spool", "status", "--json").stdout)
    sam_publish(*OK_RESULT)
    sam_publish(*OK_RESULT)

    state = json.loads(sam_publish("spool", "status", "--json").stdout)
    text = sam_publish("spool", "status").stdout

    assert (empty["messages"], empty["size_bytes"], empty["oldest"]) == (0, 0, None)
    assert state["messages"] == 2
    assert state["size_bytes"] > 400
    assert state["oldest"].endswith("Z")
    assert str(spool.path) in text


def test_spool_drain_sends_the_spooled_messages(
    sam_publish: Publish, spool: DirectoryQueue
) -> None:
    sam_publish(*OK_RESULT)

    with FakeBroker() as broker:
        done = sam_publish("spool", "drain", "--broker", broker.url)

    assert done.returncode == 0
    assert done.stdout.startswith("drained 1 message")
    assert str(spool.path) in done.stdout
    assert len(broker.taken) == 1


def test_spool_drain_without_a_reachable_broker_is_exit_code_69(
    sam_publish: Publish, spool: DirectoryQueue
) -> None:
    sam_publish(*OK_RESULT)

    done = sam_publish("spool", "drain", "--json", "--broker", dead_url())

    assert done.returncode == 69
    assert json.loads(done.stdout)["left"] == 1


def test_spool_drain_without_any_broker_is_exit_code_78(sam_publish: Publish) -> None:
    assert sam_publish("spool", "drain").returncode == 78


def test_run_passes_output_and_exit_code_on_and_publishes_the_result(
    sam_publish: Publish, tmp_path: Path
) -> None:
    plugin = tmp_path / "check_it.sh"
    plugin.write_text('#!/bin/sh\necho "$1 | x=1"\necho more\nexit 2\n')
    plugin.chmod(0o755)

    with FakeBroker() as broker:
        done = sam_publish("run", "--broker", broker.url, "--", str(plugin), "--broken")

    assert done.returncode == 2
    assert done.stdout == "--broken | x=1\nmore\n"
    assert broker.url in done.stderr
    body = broker.taken[0].body.decode()
    assert "metricName: org.nagios.check_it\n" in body
    assert "serviceFlavour: Host\n" in body
    assert "metricStatus: CRITICAL\n" in body
    assert "summaryData: --broken\n" in body
    assert "performanceData: x=1\n" in body


@pytest.mark.parametrize(("choice", "code"), [("keep", 1), ("unknown", 3)])
def test_run_without_broker_or_spool_exits_as_configured(
    sam_publish: Publish, choice: str, code: int
) -> None:
    done = sam_publish("run", "--no-spool", "--publish-failure", choice, "--", "sh", "-c", "exit 1")

    assert done.returncode == code
    assert f"the result is lost: {LOST}" in done.stderr


def test_terminating_run_terminates_the_plugin(tmp_path: Path, environment: dict[str, str]) -> None:
    pid_file = tmp_path / "pid"
    script = f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; sleep 60"
    process = subprocess.Popen(
        [sys.executable, "-m", "sam_pipeline.publisher", "run", "--", "sh", "-c", script],
        env=environment,
        cwd=tmp_path,
    )
    wait_for(pid_file.exists, 10)

    process.send_signal(signal.SIGTERM)

    assert process.wait(10) == 143
    wait_for(lambda: not Path(f"/proc/{pid_file.read_text().strip()}").exists())


def test_terminating_run_while_it_publishes_spools_the_result(
    tmp_path: Path, environment: dict[str, str], spool: DirectoryQueue
) -> None:
    with FakeBroker(mute=True) as broker:
        options = ("--broker", broker.url, "--timeout", "1", "--", "sh", "-c", "echo fine; exit 1")
        process = subprocess.Popen(
            [sys.executable, "-m", "sam_pipeline.publisher", "run", *options],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
        )
        wait_for(lambda: broker.connections > 0, 10)

        process.send_signal(signal.SIGTERM)

        assert process.wait(10) == 1
    assert spool.count() == 1


@pytest.mark.parametrize("command", ["send", "result", "run", "spool", "check"])
def test_every_command_is_listed_in_the_help_and_has_its_own(
    sam_publish: Publish, command: str
) -> None:
    overall, own = sam_publish("--help"), sam_publish(command, "--help")

    assert (overall.returncode, own.returncode) == (0, 0)
    assert f"\n    {command} " in overall.stdout
    assert own.stdout.startswith(f"usage: sam-publish {command} ")
    assert own.stdout.count("--log-format") >= 1


def test_common_options_work_before_and_after_the_command(sam_publish: Publish) -> None:
    before = sam_publish("--json", *OK_RESULT)
    after = sam_publish(*OK_RESULT, "--json")

    assert json.loads(before.stdout)["messages"][0]["outcome"] == "spooled"
    assert json.loads(after.stdout)["messages"][0]["outcome"] == "spooled"


def test_spooling_a_result_imports_no_slow_module(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    slow = {
        *("stomp", "ssl", "http", "urllib.request", "subprocess", "tempfile", "random", "shutil"),
        *("logging", "dataclasses", "inspect", "threading", "hashlib", "decimal", "tomllib"),
        "sam_pipeline.schema.identity.keys",
    }
    script = (
        "import sys; before = set(sys.modules); from sam_pipeline.publisher.cli import main;"
        f"code = main(sys.argv[1:]); print(sorted({slow} & (set(sys.modules) - before)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", script, *OK_RESULT, "--gathered-at", "wn1.example.org"],
        env=environment,
        cwd=tmp_path,
        timeout=30,
        capture_output=True,
        text=True,
    )

    assert [NO_BROKER in line for line in done.stderr.splitlines()] == [True]
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.stdout.startswith("spooled ")


@pytest.mark.parametrize(
    ("url", "start"),
    [
        ("stomp://msg.example.org", "SEND\n"),
        ("stomp+ssl://msg.example.org", "SEND\n"),
        ("activemq-rest+http://msg.example.org", "POST /api/message/"),
        ("rabbitmq-api+https://msg.example.org/v/x", "POST /api/exchanges/v/x/publish"),
        ("ams+https://msg.example.org/v1/projects/p", "POST /v1/projects/p/topics/"),
        ("sam+https://door.example.org", "POST /v1/messages HTTP/1.1"),
        ("spool:///nowhere", "{"),
    ],
)
def test_a_dry_run_shows_the_frame_or_request_of_every_kind_of_broker(
    sam_publish: Publish, environment: dict[str, str], url: str, start: str
) -> None:
    environment["SAM_PUBLISHER_PASSWORD"] = environment["SAM_PUBLISHER_TOKEN"] = "canary"

    done = sam_publish(*OK_RESULT, "--broker", url, "--dry-run")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(start)
    assert "canary" not in done.stdout


@pytest.mark.parametrize(
    "job",
    [
        {"_CONDOR_SCRATCH_DIR": "."},
        {"SLURM_TMPDIR": "."},
        {"OSG_WN_TMP": "."},
        {"TMPDIR": ".", "SLURM_JOB_ID": "7"},
        {"TMPDIR": ".", "PBS_JOBID": "7.batch"},
    ],
    ids=lambda job: "+".join(job),
)
def test_a_batch_job_gets_no_default_spool_in_its_scratch_directory(
    sam_publish: Publish,
    environment: dict[str, str],
    tmp_path: Path,
    spool: DirectoryQueue,
    job: dict[str, str],
) -> None:
    environment.update(
        {
            key: value.replace(".", str(tmp_path), 1) if value == "." else value
            for key, value in job.items()
        }
    )

    done = sam_publish(*OK_RESULT, "--broker", dead_url())

    assert done.returncode == 75
    assert done.stdout == ""
    assert done.stderr.count("no spool: ") == 1
    assert f"{spool.path} is below ${next(iter(job))}" in done.stderr
    assert LOST in done.stderr
    assert not spool.path.exists()


def test_a_batch_job_publishes_to_a_broker(
    sam_publish: Publish, environment: dict[str, str], tmp_path: Path
) -> None:
    environment["_CONDOR_SCRATCH_DIR"] = str(tmp_path)

    with FakeBroker() as broker:
        done = sam_publish(*OK_RESULT, "--broker", broker.url)

    assert done.returncode == 0
    assert done.stdout.startswith("published ")


def test_a_configured_spool_is_used_even_in_the_scratch_directory_of_a_job(
    sam_publish: Publish, environment: dict[str, str], tmp_path: Path
) -> None:
    environment["_CONDOR_SCRATCH_DIR"] = str(tmp_path)
    environment["SAM_PUBLISHER_SPOOL"] = str(tmp_path / "chosen")

    done = sam_publish(*OK_RESULT)

    assert done.returncode == 0
    assert [NO_BROKER in line for line in done.stderr.splitlines()] == [True]
    assert DirectoryQueue(tmp_path / "chosen").count() == 1


def test_tmpdir_outside_a_job_is_an_ordinary_directory(
    sam_publish: Publish, environment: dict[str, str], tmp_path: Path, spool: DirectoryQueue
) -> None:
    environment["TMPDIR"] = str(tmp_path)

    done = sam_publish(*OK_RESULT)

    assert done.returncode == 0
    assert [NO_BROKER in line for line in done.stderr.splitlines()] == [True]
    assert spool.count() == 1


def test_send_publishes_while_it_reads(
    tmp_path: Path, environment: dict[str, str], spool: DirectoryQueue
) -> None:
    """The first records are confirmed before the last ones are read, however long the input."""
    record = write_wlcg(metric_result(summaryData="x" * 200)).encode()
    with FakeBroker() as broker:
        process = subprocess.Popen(
            [sys.executable, "-m", "sam_pipeline.publisher", "send", "--broker", broker.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=tmp_path,
        )
        assert process.stdin is not None
        process.stdin.write(record * 40_000)
        process.stdin.flush()
        wait_for(lambda: len(broker.taken) > 50, 20)
        taken_before_the_end = len(broker.taken)
        output, _ = process.communicate(record, timeout=30)

    assert process.returncode == 0
    assert taken_before_the_end > 50
    assert b"(40001 records)" in output
