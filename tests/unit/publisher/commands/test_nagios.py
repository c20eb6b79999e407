"""What monitoring sees of a spool: `check_sam_publisher`, and the text file for node_exporter."""

from __future__ import annotations

import os
import re
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.commands.nagios import THRESHOLDS
from sam_pipeline.publisher.delivery.memory import Memory
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.program.monitoring_plugin import CRITICAL, OK, UNKNOWN, WARNING
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.tls_files import TlsFiles
from tests.support.builders import metric_message
from tests.support.invoke import Answer, invoke

DAY = timedelta(days=1)
URLS = [f"stomp://msg{number}.example.org:61613" for number in (1, 2)]
COPY = f'[[publisher.copy]]\nname = "b"\nbrokers = ["{URLS[1]}"]\nspool = "copy"'


def check(*options: str, toml: str = "") -> Answer:
    section = f'spool = "spool"\nstate = "state"\nbrokers = ["{URLS[0]}", "{URLS[1]}"]'
    Path("sam.toml").write_text(f"[publisher]\n{section}\n{toml}\n")
    return invoke("check_sam_publisher", *options)


def age(queue: DirectoryQueue, seconds: int) -> None:
    """Add a message that was written so long ago."""
    name = queue.add(metric_message())
    then = int(datetime.now(UTC).timestamp()) - seconds
    (queue.path / name).rename(queue.path / f"{name[:9]}{then:08x}{name[17:]}")


def test_an_empty_spool_is_ok_and_every_threshold_is_of_a_value_that_is_printed() -> None:
    answer = check()

    assert answer.code == OK
    assert answer.out.startswith(
        "SAM PUBLISHER OK - 0 messages in the spool | age=0s;3600;21600;0 "
    )
    labels = {part.partition("=")[0] for part in answer.out.partition("|")[2].split()}
    assert {t.name.replace("-", "_") for t in THRESHOLDS} - labels == {"certificate_days"}


@pytest.mark.parametrize(("age_s", "level"), [(60, OK), (3700, WARNING), (90_000, CRITICAL)])
@pytest.mark.parametrize("oldest", ["spool", "copy"])
def test_the_oldest_message_of_any_spool_decides(oldest: str, age_s: int, level: int) -> None:
    DirectoryQueue(Path("spool")).add(metric_message())
    age(DirectoryQueue(Path(oldest)), age_s)

    answer = check(toml=COPY)

    assert answer.code == level, str(answer)
    assert "2 messages in the spool" in answer.out


def test_messages_count_by_limit_threshold_and_damage(spool: DirectoryQueue) -> None:
    spool.add(metric_message())
    assert check(toml="spool_max_messages = 2").code == WARNING
    assert check("--warning-messages", "1").code == WARNING
    assert check("--critical-messages", "1").code == CRITICAL
    document = check("--json", "--warning-messages", "1").json
    assert (document["state"], document["messages"]) == ("WARNING", 1)

    name = spool.add(metric_message())
    assert check(toml="spool_max_messages = 2").code == CRITICAL
    assert check().code == OK
    spool.quarantine(name, "damaged")
    answer = check()
    assert answer.code == WARNING
    assert "1 damaged" in answer.out and "quarantined=1;1;;0" in answer.out


def test_brokers_that_all_fail_again_and_again_are_a_warning() -> None:
    addresses = [BrokerAddress(parse_broker(url), "192.0.2.1") for url in URLS]
    memory = Memory(Path("state"), [address.broker for address in addresses])
    for address in addresses * 5:
        memory.failed(address, "connection refused")
    memory.save()
    answer = check()
    assert (answer.code, "connection refused" in answer.out) == (WARNING, True)

    memory.worked(addresses[1])
    memory.save()

    assert check().code == OK


@pytest.mark.parametrize(("days", "level"), [(30, OK), (10, WARNING), (2, CRITICAL)])
def test_the_days_left_of_a_certificate_count(tmp_path: Path, days: int, level: int) -> None:
    files, now = TlsFiles(tmp_path), datetime.now(UTC)
    path = files.x509_proxy(files.client(now - 300 * DAY, now + days * DAY))

    table = f'[[publisher.broker]]\nurl = "stomp+ssl://msg3"\ncertificate_file = "{path}"'
    answer = check(toml=table)

    assert answer.code == level, str(answer)
    assert (str(path) in answer.out) == bool(level)
    assert re.search(r"certificate_days=-?\d+(\.\d+)?;14:;3:", answer.out)


def test_what_can_not_be_read_is_unknown(tmp_path: Path) -> None:
    for options in (("--config", "missing.toml"), ("--warning-age", "x")):
        assert check(*options).out.startswith("SAM PUBLISHER UNKNOWN - ")
    (tmp_path / "spool").write_text("not a directory")
    assert check().code == UNKNOWN


def write(path: str = "sam.prom") -> Answer:
    return invoke("sam-publish", "spool", "status", "--textfile", path)


def test_the_text_file_has_spools_and_certificates(tmp_path: Path, spool: DirectoryQueue) -> None:
    files = TlsFiles(tmp_path)
    path = files.x509_proxy(files.client()).rename(tmp_path / 'a"b\\c.pem')
    Path("sam.toml").write_text(
        f"[publisher]\nspool = 'spool'\ncertificate_file = '{path}'\n{COPY}"
    )
    spool.add(metric_message())
    spool.quarantine(spool.add(metric_message()), "damaged")
    mask = os.umask(0o077)
    try:
        assert write().code == 0
    finally:
        os.umask(mask)

    samples = {
        (sample.name.removeprefix("sam_publish_"), "".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(Path("sam.prom").read_text())
        for sample in family.samples
    }
    [size] = [path.stat().st_size for path in spool.path.glob("*/*")]
    assert samples["spool_messages", ""] == samples["spool_quarantined_messages", ""] == 1
    assert samples["spool_bytes", ""] == size
    assert (samples["spool_messages", "b"], samples["spool_max_messages", "b"]) == (0, 100_000)
    assert samples["spool_oldest_timestamp_seconds", ""] > 1_790_000_000
    assert ("spool_oldest_timestamp_seconds", "b") not in samples
    assert samples["certificate_expiry_timestamp_seconds", str(path)] > 0
    assert any(name == "build_info" for name, _ in samples)
    assert stat.S_IMODE(Path("sam.prom").stat().st_mode) == 0o644  # others may read it


def test_an_error_leaves_the_old_file_so_that_its_age_is_an_alarm(tmp_path: Path) -> None:
    Path("sam.toml").write_text('[publisher]\nspool = "spool"\n')
    assert write().code == 0
    before = Path("sam.prom").read_text()
    assert write("sam.toml/sam.prom").code not in (0, 70, 77)

    (tmp_path / "spool").write_text("not a directory")
    assert write().code not in (0, 70)

    assert Path("sam.prom").read_text() == before
    assert list(tmp_path.glob(".sam*")) == []
