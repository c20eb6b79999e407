"""`check_sam_publisher`: when it warns, and what it prints."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.commands import nagios
from sam_pipeline.publisher.commands.nagios import THRESHOLDS, main
from sam_pipeline.publisher.delivery.memory import Memory
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.publisher.settings.copy_config import CopyTable
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.program.monitoring_plugin import CRITICAL, OK, UNKNOWN, WARNING
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.tls_files import TlsFiles
from tests.support.builders import metric_message

DAY = timedelta(days=1)
FIRST, SECOND = "stomp://msg1.example.org:61613", "stomp://msg2.example.org:61613"


class Host:
    """A configuration, and what the plugin says of it."""

    def __init__(self, directory: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self.queue = DirectoryQueue(directory / "spool")
        self.copy = DirectoryQueue(directory / "copy-spool")
        self._capture = capture
        self.configure()

    def configure(self, *lines: str) -> None:
        (self.directory / "sam.toml").write_text(
            f'[publisher]\nspool = "spool"\nstate = "state"\nbrokers = ["{FIRST}", "{SECOND}"]\n'
            + "".join(f"{line}\n" for line in lines)
        )

    def check(self, *options: str) -> tuple[int, str]:
        code = main(["--config", str(self.directory / "sam.toml"), *options])
        return code, self._capture.readouterr().out

    def age(self, queue: DirectoryQueue, seconds: int) -> None:
        """Add a message that was written so long ago."""
        name = queue.add(metric_message())
        then = int(datetime.now(UTC).timestamp()) - seconds
        (queue.path / name).rename(queue.path / f"{name[:9]}{then:08x}{name[17:]}")


@pytest.fixture
def host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Host:
    return Host(tmp_path, capsys)


def test_an_empty_spool_is_ok(host: Host) -> None:
    code, line = host.check()

    assert code == OK
    assert re.match(r"SAM PUBLISHER OK - 0 messages in the spool \| age=0s;3600;21600;0 ", line)


@pytest.mark.parametrize(("age_s", "level"), [(60, OK), (3700, WARNING), (90_000, CRITICAL)])
@pytest.mark.parametrize("of_a_copy", [False, True])
def test_the_oldest_message_of_any_spool_decides(
    host: Host, age_s: int, level: int, of_a_copy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = CopyTable("b", (SECOND,), spool=host.copy.path)
    config = PublisherConfig(spool=host.queue.path, copy=(copy,))
    monkeypatch.setattr(nagios, "load_config", lambda *_: config)
    host.queue.add(metric_message())
    host.age(host.copy if of_a_copy else host.queue, age_s)

    code, line = host.check()

    assert code == level, line
    assert "2 messages in the spool" in line


def test_a_spool_that_is_nearly_full_is_critical(host: Host) -> None:
    host.configure("spool_max_messages = 2")
    host.queue.add(metric_message())
    assert host.check()[0] == WARNING
    host.queue.add(metric_message())

    assert host.check()[0] == CRITICAL


def test_a_damaged_message_is_a_warning(host: Host) -> None:
    host.queue.quarantine(host.queue.add(metric_message()), "damaged")

    code, line = host.check()

    assert code == WARNING
    assert "1 damaged" in line and "quarantined=1;1;;0" in line


def test_brokers_that_all_fail_again_and_again_are_a_warning(host: Host) -> None:
    brokers = [parse_broker(url) for url in (FIRST, SECOND)]
    memory = Memory(host.directory / "state", brokers)
    for broker in brokers:
        for _ in range(5):
            memory.failed(BrokerAddress(broker, "192.0.2.1"), "connection refused")
    memory.save()
    assert host.check()[0] == WARNING
    assert "connection refused" in host.check()[1]

    memory.worked(BrokerAddress(brokers[1], "192.0.2.1"))
    memory.save()

    assert host.check()[0] == OK


@pytest.mark.parametrize(
    ("days", "level"), [(30, OK), (10, WARNING), (2, CRITICAL), (-1, CRITICAL)]
)
def test_the_days_left_of_a_certificate_count(host: Host, days: int, level: int) -> None:
    files, now = TlsFiles(host.directory), datetime.now(UTC)
    path = files.certificate_file(files.client(now - 300 * DAY, now + days * DAY))
    host.configure(
        "[[publisher.broker]]",
        'url = "stomp+ssl://msg3.example.org"',
        f'certificate_file = "{path}"',
    )

    code, line = host.check()

    assert code == level, line
    assert (str(path) in line) == bool(level)
    assert re.search(r"certificate_days=-?\d+(\.\d+)?;14:;3:", line)


def test_a_threshold_is_an_option(host: Host) -> None:
    host.queue.add(metric_message())

    assert host.check("--warning-messages", "1")[0] == WARNING
    assert host.check("--critical-messages", "1")[0] == CRITICAL
    code, document = host.check("--json", "--warning-messages", "1")
    assert (code, json.loads(document)["state"], json.loads(document)["messages"]) == (
        1,
        "WARNING",
        1,
    )


def test_every_threshold_is_of_a_value_that_is_printed(host: Host) -> None:
    _, line = host.check()

    labels = {part.partition("=")[0] for part in line.partition("|")[2].split()}
    assert {t.name.replace("-", "_") for t in THRESHOLDS} - labels == {"certificate_days"}


def test_what_can_not_be_read_is_unknown(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(host.directory / "other.toml")]) == UNKNOWN
    assert capsys.readouterr().out.startswith("SAM PUBLISHER UNKNOWN - ")
    (host.directory / "spool").write_text("not a directory")

    assert host.check()[0] == UNKNOWN
    with pytest.raises(SystemExit) as usage:
        host.check("--warning-age", "x")
    assert usage.value.code == UNKNOWN
