"""`sam-publish spool …` inspects, repairs and drains a spool; what monitoring sees of one."""

from __future__ import annotations

import errno
import os
import re
import signal
import stat
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sam_pipeline.publisher.commands.nagios import THRESHOLDS
from sam_pipeline.publisher.delivery.route import Memory
from sam_pipeline.publisher.spool import inspection
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker import Target, parse_broker
from sam_pipeline.schema.program.monitoring_plugin import CRITICAL, OK, UNKNOWN, WARNING
from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.tls_files import TlsFiles
from tests.support.builders import metric_message
from tests.support.invoke import Answer, invoke
from tests.support.publishing import RESULT, dead_url, filled, refusing, sized

SERVLET = "activemq-rest+http://msg.example.org:8161/api/message"


@pytest.fixture(autouse=True)
def configured() -> None:
    Path("sam.toml").write_text(
        f'[publisher]\nspool = "spool"\nbrokers = ["{SERVLET}", "{dead_url()}"]\ntimeout = "5s"\n'
    )


def run(action: str, *options: str, code: int = 0) -> Answer:
    answer = invoke("sam-publish", "spool", action, *options)
    assert answer.code == code, str(answer)
    return answer


def json_of(action: str, *options: str, code: int = 0) -> Any:
    return run(action, *options, "--json", code=code).json


def damage(spool: DirectoryQueue, name: str, content: bytes = b"") -> None:
    (spool.path / name).write_bytes(content)


def place(spool: DirectoryQueue, name: str, seconds_old: float) -> None:
    path = spool.path / name
    path.touch()
    os.utime(path, (0, time.time() - seconds_old))


def set_aside(spool: DirectoryQueue) -> str:
    """The name of a damaged element of one byte in the quarantine."""
    name = spool.add(metric_message())
    damage(spool, name, b"{")
    spool.lock(name)
    return spool.quarantine(name, "cut off").name


def test_list_shows_each_element_with_its_content_oldest_first(spool: DirectoryQueue) -> None:
    assert json_of("list") == []
    message = metric_message(destination="/queue/mine")
    names = [spool.add(message), spool.add(sized(300_000))]
    spool.lock(names[1])
    aside = set_aside(spool)

    first, second, third = json_of("list")

    assert first.pop("written_at").endswith("Z")
    assert first == {
        "element": names[0],
        "size_bytes": (spool.path / names[0]).stat().st_size,
        "locked": False,
        "set_aside": False,
        "message_class": "metricOutput",
        "message_id": message.message_id,
        "destination": "/queue/mine",
        "damage": None,
        "refusals": {},
    }
    assert (second["element"], second["locked"]) == (names[1], True)
    assert second["refusals"].keys() == {SERVLET}
    assert (third["element"], third["set_aside"], third["damage"]) == (aside, True, "cut off")


def test_show_finds_an_element_by_its_name_and_by_its_message_id(spool: DirectoryQueue) -> None:
    first, second = metric_message(), Message({"samMessageId": "m1", "note": "x: y"}, b"\xff\0")
    name = spool.add(first)
    spool.add(second)

    documents = json_of("show", "m1", name)
    text = run("show", name).out

    assert [document["message_id"] for document in documents] == ["m1", first.message_id]
    assert (documents[0]["headers"]["note"], documents[0]["body_base64"]) == ("x: y", "/wA=")
    assert documents[1]["body"] == first.body.decode()
    assert f"samMessageId: {first.message_id}" in text
    assert text.endswith(first.body.decode())
    assert "damage: cut off" in run("show", set_aside(spool), code=65).out
    assert "not in the spool" in run("show", "nobody", code=66).err


def test_status_reports_counts_and_limits(spool: DirectoryQueue) -> None:
    assert "messages     0 of 100000, refuse\n" in run("status").out
    name = spool.add(metric_message())
    spool.add(sized(300_000))
    spool.lock(name)
    set_aside(spool)

    state = json_of("status")

    assert state.pop("oldest").endswith("Z")
    assert state.pop("size_bytes") > 800
    assert state == {
        "path": str(spool.path),
        "messages": 2,
        "max_messages": 100_000,
        "max_bytes": 1024**3,
        "when_full": "refuse",
        "locked": 1,
        "refusals": {SERVLET: 1},
        "lost": 0,
        "quarantined": 1,
        "quarantined_bytes": 1,
        "dropped": 0,
        "copy": None,
        "copies": [],
    }
    assert f"not for      {SERVLET}: 1" in run("status").out


def test_elements_are_dropped_by_name_and_by_message_id(spool: DirectoryQueue) -> None:
    message = metric_message()
    twice = [spool.add(message), spool.add(message)]
    named, aside, kept = spool.add(metric_message()), set_aside(spool), spool.add(metric_message())

    text = run("drop", message.message_id, named, aside).out

    dropped = [line.split()[1] for line in text.splitlines()]
    assert dropped == [f"{name}:" for name in (*twice, named, aside)]
    assert list(spool.names()) == [kept]
    assert list(Path(f"{spool.path}.bad").iterdir()) == []


def test_nothing_is_dropped_for_a_wrong_id_nor_while_it_is_sent(spool: DirectoryQueue) -> None:
    sending, name = spool.add(metric_message()), spool.add(metric_message())
    spool.lock(sending)

    assert "no-such-id" in run("drop", name, "no-such-id", code=66).err
    assert spool.count() == 2
    answer = run("drop", name, sending, code=75)

    assert f"another process is sending it: {sending}" in answer.err
    assert list(spool.names()) == [sending]


def test_verify_reports_every_problem_and_repair_mends_what_it_can(spool: DirectoryQueue) -> None:
    names = sorted(spool.add(metric_message()) for _ in range(6))
    place(spool, f"{names[0]}1.tmp", seconds_old=10)
    assert run("verify").out == run("repair").out == f"{spool.path}: no problem found\n"
    directory = names[0].split("/")[0]
    damage(spool, names[0])
    damage(spool, names[1], b'{"body": "cut')
    (spool.path / names[2]).chmod(0o666)
    spool.lock(names[3])
    place(spool, f"{names[3]}.lck", seconds_old=700)
    place(spool, f"{names[4]}7.tmp", seconds_old=700)
    place(spool, f"{directory}/notes", seconds_old=0)
    (spool.path / names[5]).unlink()
    (spool.path / names[5]).symlink_to("/etc/passwd")
    (spool.path / "00000000").symlink_to("/etc")
    (spool.path / "0000003c").mkdir()
    damage(spool, "0000003c/0000003c000000", serialise(metric_message()))
    (spool.path / "0000003c").chmod(0o777)
    mendable = dict.fromkeys(names[:2], "damaged") | {
        f"{names[3]}.lck": "stale-lock",
        f"{names[4]}7.tmp": "leftover",
        names[5]: "link",
    }
    others = {names[2]: "mode", f"{directory}/notes": "foreign"}
    others |= {"00000000": "link", "0000003c": "mode"}
    before = sorted(spool.path.rglob("*"))

    report = json_of("verify", code=65)

    assert {entry["name"]: entry["problem"] for entry in report} == mendable | others
    assert run("verify", code=65).out.endswith("9 problems\n")
    assert sorted(spool.path.rglob("*")) == before

    report = json_of("repair", code=65)

    assert {entry["name"] for entry in report} == mendable.keys() | others.keys()
    assert {entry["name"] for entry in report if entry["done"]} == mendable.keys()
    left = {entry["problem"] for entry in json_of("verify", code=65)}
    assert left == {"mode", "foreign", "link"}
    assert len(list(Path(f"{spool.path}.bad").glob("*.reason"))) == 3


def test_repair_does_not_touch_a_damaged_element_that_is_locked(spool: DirectoryQueue) -> None:
    name = spool.add(metric_message())
    damage(spool, name)
    spool.lock(name)

    assert "another process" in run("repair", code=65).out
    assert spool.count() == 1


@pytest.mark.parametrize(
    ("state", "code", "counts"),
    [
        ("good", 0, {"sent": 2}),
        ("locked", 75, {"left": 1, "locked": 1}),
        ("damaged", 65, {"set_aside": 1}),
        ("rejected", 65, {"left": 1, "rejected": 1}),
    ],
)
def test_a_drain_reports_what_it_sent_and_why_the_rest_is_left(
    spool: DirectoryQueue, state: str, code: int, counts: dict[str, int]
) -> None:
    first, _ = filled(spool, 2)
    name = next(spool.names())
    if state == "locked":
        spool.lock(name)
    elif state == "damaged":
        damage(spool, name)

    with FakeBroker(rejects=refusing(first if state == "rejected" else "")) as broker:
        report = json_of("drain", "--broker", broker.url, code=code)

    assert report.pop("elapsed_s") < 30
    nothing = dict.fromkeys(("rejected", "locked", "inaccessible", "set_aside", "left"), 0)
    assert report == {"sent": 1, **nothing, "copy": None, "copies": [], **counts}
    assert len(broker.taken) == report["sent"]


def test_a_drain_without_a_broker_is_an_error(spool: DirectoryQueue) -> None:
    spool.add(metric_message())

    assert json_of("drain", "--broker", dead_url(), code=69)["left"] == 1
    Path("sam.toml").write_text('[publisher]\nspool = "spool"\n')
    assert "no broker to drain to" in run("drain", code=78).err


def test_a_terminated_loop_succeeds(spool: DirectoryQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    spool.add(metric_message())
    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(
        "sam_pipeline.publisher.delivery.drain.logger.info",
        lambda *_: os.kill(os.getpid(), signal.SIGTERM),
    )

    answer = run("drain", "--loop", "--broker", f"spool://{spool.path.parent}/target")

    assert answer.out.startswith("drained 1 message")
    assert DirectoryQueue(Path("target")).count() == 1
    assert signal.getsignal(signal.SIGTERM) == handler


DAY = timedelta(days=1)
URLS = [f"stomp://msg{number}.example.org:61613" for number in (1, 2)]
COPY = f'[[publisher.copy]]\nname = "b"\nbrokers = ["{URLS[1]}"]\nspool = "copy"'


def check(*options: str, toml: str = "") -> Answer:
    section = f'spool = "spool"\nbrokers = ["{URLS[0]}", "{URLS[1]}"]'
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
    addresses = [Target(parse_broker(url), "192.0.2.1") for url in URLS]
    memory = Memory(Path("state"), addresses)
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


def test_a_spool_that_takes_nothing_is_critical_and_found_by_check(
    spool: DirectoryQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that is full."""
    spool.add(metric_message())
    before = sorted(spool.path.rglob("*"))

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert check().code == OK
    monkeypatch.setattr(os, "fsync", full)
    answer = check()
    found = invoke("sam-publish", "check")

    assert (answer.code, "no space" in answer.out) == (CRITICAL, True)
    assert (found.code, "no space" in found.err) == (78, True)
    assert sorted(spool.path.rglob("*")) == before


@pytest.mark.parametrize("state", ["state", "sam.toml/state"])  # the second can't be written
def test_lost_results_are_counted_where_that_is_possible_and_shown_for_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / state))
    check()  # writes the configuration
    lost = (*RESULT, "--no-spool", "--broker", dead_url())
    for _ in range(2):
        assert invoke("sam-publish", *lost).code == 69

    answer = check()
    monkeypatch.setattr(inspection, "RECENT", timedelta(minutes=-1))
    later = check()

    assert (answer.code, "2 results lost" in answer.out) == (CRITICAL, True)
    assert (later.code, write().code) == (OK, 0)
    assert "sam_publish_lost_results 2\n" in Path("sam.prom").read_text()
    assert "lost         2" in invoke("sam-publish", "spool", "status").out


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
