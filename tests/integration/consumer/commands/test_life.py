"""The life of a daemon: a message that kills it, a changed configuration, a name in use."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.consumer.faults import fill_up
from tests.support.consumer.site import Site, eventually, fill_spool, make_site, results, stop
from tests.support.small_disk import small_disk

# Simulates a message that crashes the interpreter.
KILLED_BY_A_MESSAGE = """
import os, signal, sys
from sam_pipeline.schema.messages.decode_cache import CachedDecoder
decode = CachedDecoder.decode
def deadly(decoder, message):
    if b"KILLER" in message.body:
        os.kill(os.getpid(), signal.SIGKILL)
    return decode(decoder, message)
CachedDecoder.decode = deadly
from sam_pipeline.consumer.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return make_site(tmp_path, f"sqlite:///{tmp_path}/sam.db", [f"spool://{tmp_path}/in"])


def poison() -> Message:
    return new_message("metricOutput", "KILLER", record_count=1)


def test_a_message_that_kills_the_process_becomes_a_dead_letter_and_the_others_rows(
    site: Site, tmp_path: Path
) -> None:
    messages = results(100)
    messages.insert(50, poison())
    fill_spool(tmp_path / "in", messages)
    drain = site.command("run", "--drain")
    module = drain.index("-m")
    command = [*drain[:module], "-c", KILLED_BY_A_MESSAGE, *drain[module + 2 :]]

    codes = []
    while len(codes) < 10 and (not codes or codes[-1] == -signal.SIGKILL):
        codes.append(subprocess.run(command, capture_output=True, timeout=60).returncode)

    assert codes == [-signal.SIGKILL] * 4 + [65]
    assert site.rows() == 100
    assert site.scalar("SELECT reason FROM dead_letter") == "poison"
    assert DirectoryQueue(tmp_path / "in").count() == 0


def test_a_full_disk_under_the_state_directory_stops_nothing(site: Site, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with small_disk(tmp_path / "state", "size=64k") as state:
        assert site.drain().code == 0
        fill_up(state / "ballast")
        fill_spool(tmp_path / "in", results(50))
        with site.daemon(log=log) as process:
            site.wait_for_rows(50)
            fill_spool(tmp_path / "in", results(50, "org.sam.After"))
            site.wait_for_rows(100)
            code, _ = stop(process)

    assert code == 0
    text = log.read_text()
    assert [text.count(f".{file}: No space left") for file in ("attempts", "claims")] == [1, 1]


def test_sighup_reads_the_configuration_again(site: Site, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with site.daemon(log=log) as process:
        fill_spool(tmp_path / "in", results(3, "org.sam.Before"))
        site.wait_for_rows(3)
        text = site.config.read_text()
        site.config.write_text(text.replace(f"spool://{tmp_path}/in", f"spool://{tmp_path}/other"))
        process.send_signal(signal.SIGHUP)
        fill_spool(tmp_path / "other", results(4, "org.sam.After"))
        site.wait_for_rows(7)
        code, _ = stop(process)

    assert code == 0
    assert "stopped: 7 messages" in log.read_text()


def test_sighup_reads_the_fragments_again(site: Site, tmp_path: Path) -> None:
    fragment = tmp_path / "conf.d" / "10-limits.toml"
    fragment.parent.mkdir()
    fragment.write_text("[consumer]\nbatch_size = 7\n")
    log = tmp_path / "log"
    with site.daemon(log=log) as process:
        eventually(lambda: "starting with" in log.read_text())
        fragment.write_text("[consumer]\nbatch_size = 0\n")
        process.send_signal(signal.SIGHUP)
        eventually(lambda: f"{fragment}:2: [consumer] batch_size: " in log.read_text())
        fragment.unlink()
        process.send_signal(signal.SIGHUP)
        eventually(lambda: log.read_text().count("starting with") == 2)
        code, _ = stop(process)

    assert code == 0


def test_an_invalid_configuration_is_reported_and_not_applied(site: Site, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with site.daemon(log=log) as process:
        eventually(lambda: "starting with" in log.read_text())
        site.config.write_text(site.config.read_text() + '\n[consumer.nonsense]\na = "b"\n')
        process.send_signal(signal.SIGHUP)
        eventually(lambda: "continuing with the previous configuration" in log.read_text())
        fill_spool(tmp_path / "in", results(3))
        site.wait_for_rows(3)
        code, _ = stop(process)

    assert code == 0
    assert "unknown key nonsense" in log.read_text()


def test_a_second_process_with_the_same_name_is_refused(site: Site, tmp_path: Path) -> None:
    with site.daemon(log=tmp_path / "log") as process:
        eventually(lambda: "starting with" in (tmp_path / "log").read_text())
        second = site.run("run", "--drain")

        assert second.returncode == 69
        assert "another sam-consume" in second.stderr
        assert repr(site.name) in second.stderr
        assert f"process {process.pid}" in second.stderr
