"""`sam-publish passive` as a process, with a real FIFO: whatever writers do, no result is lost."""

from __future__ import annotations

import re
import signal
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sam_pipeline.schema.records.text import ReadRecord, read_wlcg
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services.systemd import Systemd
from tests.support.brokers.fake_broker import FakeBroker, closed_port
from tests.support.commands import PROGRAMS, Workplace
from tests.support.waiting import eventually

PASSIVE = ("sam-publish", "passive", "--flavour", "CE", "--metric-prefix", "org.example.")


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    broker = f"stomp://127.0.0.1:{closed_port()}"
    return Workplace(tmp_path, broker=broker, database="").write_configuration()


def service(number: int, output: str = "OK") -> str:
    """A line as NSCA writes it."""
    now = int(time.time())
    return f"[{now}] PROCESS_SERVICE_CHECK_RESULT;ce01;m{number};{number % 4};{output}\n"


class Listener:
    """The command, reading a FIFO; killed at the end of its block."""

    def __init__(self, place: Workplace, *options: str, **variables: str) -> None:
        self.fifo = place.directory / "results.cmd"
        with Systemd(str(place.directory / "notify")) as systemd:
            notify = {"NOTIFY_SOCKET": systemd.address}
            self.process = subprocess.Popen(
                [str(PROGRAMS / "sam-publish"), *PASSIVE[1:], "--fifo", str(self.fifo), *options],
                cwd=place.directory,
                env=place.clean_environment() | notify | variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # under nohup
            )
            eventually(lambda: "READY=1" in "\n".join(systemd.all_heard()))
        (place.directory / "notify").unlink()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def write(self, text: str) -> None:
        with self.fifo.open("w") as file:
            file.write(text)

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[str, str]:
        """What it printed on both outputs, ended by this signal with exit code 0."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        assert (self.process.returncode, "Traceback" in err) == (0, False), err
        return out, err


def records(place: Workplace, *bodies: bytes) -> list[dict[str, str]]:
    """The records in the spool and in these bodies."""
    spool = DirectoryQueue(place.directory / "outbox")
    read = [*(spool.read(name).body for name in spool.names()), *bodies]
    found = [record for body in read for record in read_wlcg(body)]
    return [dict(record.fields) for record in found if isinstance(record, ReadRecord)]


def metrics(place: Workplace, *bodies: bytes) -> list[str]:
    return [record["metricName"].removeprefix("org.example.") for record in records(place, *bodies)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_without_a_loss(place: Workplace, number: signal.Signals) -> None:
    with Listener(place) as listener:
        batches = [[service(writer * 100 + at) for at in range(100)] for writer in range(4)]
        with ThreadPoolExecutor() as writers:
            list(writers.map(lambda lines: [listener.write(line) for line in lines], batches))
        out, _ = listener.end(number)

    assert sorted(metrics(place)) == sorted(f"m{n}" for n in range(400))
    assert "400 spooled, 0 refused" in out


def test_results_reach_the_broker_while_a_bad_line_is_named(place: Workplace) -> None:
    with FakeBroker() as broker, Listener(place, "--broker", broker.url) as listener:
        listener.write(service(1))
        eventually(lambda: len(broker.taken) == 1)
        listener.write("".join([service(2) * 500, "garbage\n", service(3, "x" * 70_000)]))
        eventually(lambda: sum(int(f.headers["recordCount"]) for f in broker.taken) == 502)
        listener.write(service(4))  # published once the receipts of all others have arrived
        eventually(lambda: sum(int(f.headers["recordCount"]) for f in broker.taken) == 503)
        out, err = listener.end()

    assert "1 refused" in out and ("503 published" in out or "502 published, 1 spooled" in out)
    refused = re.findall(r"results\.cmd:(\d+): record refused, ([\w-]+)", err)
    assert refused == [("502", "no-command")]
    assert metrics(place) in ([], ["m4"])


def test_while_the_spool_is_full_nothing_is_lost_nor_read(place: Workplace) -> None:
    small = {"SAM_PUBLISHER_SPOOL_MAX_MESSAGES": "1"}
    options = ("--flush-s", "0.1")
    with (
        FakeBroker(refuses_login="the broker is not ready") as broker,
        Listener(place, "--broker", broker.url, *options, **small) as listener,
    ):
        listener.write(service(1))
        eventually(lambda: place.spooled("outbox") == 1)
        listener.write(service(2))
        eventually(lambda: len(broker.logins) > 1)
        broker.refuses_login = ""
        eventually(lambda: any(b"m2" in frame.body for frame in broker.taken))
        _, err = listener.end()

    assert "nothing more is read" in err
    assert sorted(metrics(place, *(frame.body for frame in broker.taken))) == ["m1", "m2"]


def test_a_killed_daemon_leaves_the_fifo_to_the_next_one(place: Workplace) -> None:
    with Listener(place) as listener:
        mode = stat.S_IMODE(listener.fifo.stat().st_mode)
        second = place.process(*PASSIVE, "--fifo", listener.fifo)
        listener.process.kill()
    with Listener(place) as listener:
        listener.write(service(7))
        listener.end()

    assert (mode, second.code, "another process" in second.err) == (0o660, 73, True)
    assert metrics(place) == ["m7"]


XML = """<?xml version="1.0"?>
<checkresults>
  <checkresult type="service" checktype="1">
    <hostname>CE01</hostname><servicename>Ping</servicename><state>1</state>
    <output>SLOW &amp; late | rtt=3s\\nline 2</output>
  </checkresult>
  <checkresult type="host"><hostname>ce01</hostname><state>1</state><output/></checkresult>
</checkresults>"""


def test_a_document_becomes_a_record_for_each_result(place: Workplace) -> None:
    options = ("--site", "SITE-A", "--vo", "ops", "--gathered-at", "nagios1")

    place.succeed(*PASSIVE, *options, stdin=XML)

    shared = {"siteName": "SITE-A", "voName": "ops", "hostName": "ce01"}
    shared |= {"gatheredAt": "nagios1", "monitoringHost": "nagios1"}
    service, host = records(place)
    del service["timestamp"], host["timestamp"]
    assert service == {
        **shared,
        "serviceFlavour": "CE",
        "metricName": "org.example.Ping",
        "metricStatus": "WARNING",
        "summaryData": "SLOW & late",
        "performanceData": "rtt=3s",
        "detailsData": "line 2",
    }
    assert host == {
        **shared,
        "serviceFlavour": "Host",
        "metricName": "org.example.Host-Check",
        "metricStatus": "CRITICAL",
    }


def test_a_refused_result_is_the_exit_code_of_the_input_that_ends(place: Workplace) -> None:
    answer = place.run(*PASSIVE, "--json", stdin=f"{service(1)}garbage\n{service(2)}")

    refused = [(item["line"], item["reason"]) for item in answer.json["refused_records"]]
    assert (answer.code, refused) == (65, [(2, "no-command")])
    assert metrics(place) == ["m1", "m2"]
