"""The life of a consumer: a deadly message, a changed configuration, a name in use, its tokens."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from sam_pipeline.schema.identity.tokens import load_tokens
from sam_pipeline.schema.messages.message import new_message
from sam_pipeline.schema.program.command import CONFIG
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.consumer.daemon import STARTING, running
from tests.support.consumer.site import Site, fill_spool, results

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


def test_sighup_reads_the_configuration_again_unless_it_is_invalid(
    small_site: Site, tmp_path: Path
) -> None:
    fragment = tmp_path / "conf.d" / "10-limits.toml"
    fragment.parent.mkdir()
    fragment.write_text("[consumer]\nbatch_size = 7\n")
    with running(small_site) as daemon:
        small_site.fill(*results(3, "org.sam.Before"))
        small_site.wait_for_rows(3)
        fragment.write_text("[consumer]\nbatch_size = 0\n")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for("continuing with the previous configuration")
        small_site.fill(*results(2, "org.sam.Meanwhile"))
        small_site.wait_for_rows(5)
        fragment.unlink()
        small_site.edit(f"spool://{tmp_path}/spool", f"spool://{tmp_path}/other")
        daemon.process.send_signal(signal.SIGHUP)
        fill_spool(tmp_path / "other", results(4, "org.sam.After"))
        small_site.wait_for_rows(9)
        second = small_site.run("run", "--drain")
        stopped = daemon.stop()

    assert (stopped.code, stopped.messages, len(daemon.lines(STARTING))) == (0, 9, 3)
    assert second.returncode == 69
    assert f"process {daemon.process.pid}" in second.stderr


def test_tokens_of_senders_over_http_are_made_once_and_work_from_their_file(
    small_site: Site,
) -> None:
    small_site.config.write_text(
        '[consumer]\nbrokers = ["listen+http://127.0.0.1:8080"]\n'
        '[consumer.door]\ntokens_file = "tokens"\n'
    )
    file, elsewhere = small_site.config.with_name("tokens"), small_site.config.with_name("others")

    made = small_site.run("token", "make", "a")
    second = small_site.json("token", "make", "b")
    listed = small_site.json("token", "list")
    other = small_site.run("token", "make", "c", "--file", str(elsewhere))

    tokens = load_tokens(file)
    assert tokens.name_of(made.stdout.removesuffix("\n")) == "a"
    assert tokens.name_of(second["token"]) == "b"
    assert second["identity"] == "token:b"
    assert [(row["name"], row["line"]) for row in listed] == [("a", 1), ("b", 2)]
    assert made.stdout.strip() not in made.stderr
    assert (other.returncode, load_tokens(elsewhere).names, tokens.names) == (0, {"c"}, {"a", "b"})
    file.chmod(0o644)  # others can read it
    before = file.read_text()
    refused = small_site.run("token", "make", "d")
    assert (refused.returncode, refused.stdout, file.read_text()) == (CONFIG, "", before)
