"""`sam-consume run --dry-run`: what messages would become, without storing or taking anything."""

from __future__ import annotations

import json
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.schema.messages.message import Message
from tests.services.postgres import as_role
from tests.services.rabbitmq import RabbitMQServer
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, eventually, make_site, results

GOOD = metric_result(serviceFlavour="CE, SE", colour="blue")
BAD = metric_result(metricStatus="SPLENDID")
UNKNOWN = Message({"messageClass": "cellar", "samMessageId": "cellar-1"}, b"a: b\nEOT\n")
POLICY = """\
mode = "{mode}"
[[publisher]]
name = "probes"
is = ["uid:*", "anonymous"]
classes = ["metricOutput"]
hosts = ["*.cern.ch"]
"""


def dry_run(site: Site, *messages: Message) -> list[dict[str, Any]]:
    site.fill(*messages)
    done = site.run("run", "--dry-run", "--json", "--count", str(len(messages)))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def tree(site: Site) -> dict[str, tuple[int, int]]:
    """All files of the site's directory, with size and time of the last change."""
    paths = site.config.parent.rglob("*")
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


def test_it_shows_the_rows_dead_letters_and_ignored_keys_that_a_drain_stores(
    small_site: Site,
) -> None:
    first, second = dry_run(small_site, metric_message(GOOD, BAD), UNKNOWN)
    before = tree(small_site)
    small_site.run("run", "--dry-run", "--count", "2")
    after = tree(small_site)
    drained = small_site.drain()

    rows = [(row["record"], row["class"], row["values"]["serviceFlavour"]) for row in first["rows"]]
    assert rows == [(1, "metricOutput", "CE"), (1, "metricOutput", "SE")]
    assert first["ignored_keys"] == {"colour": 1}
    letters = [*first["dead_letters"], *second["dead_letters"]]
    assert [(letter["record"], letter["reason"]) for letter in letters] == [
        (2, "bad-status"),
        (None, "unknown-class"),
    ]
    assert before == after
    assert drained.summary["rows"] == 2
    assert drained.summary["dead_letters"] == {"bad-status": 1, "unknown-class": 1}


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_the_verdict_of_the_policy_is_shown(small_site: Site, mode: str) -> None:
    small_site.config.with_name("policy.toml").write_text(POLICY.format(mode=mode))
    small_site.configure('publishers = "policy.toml"')

    [shown] = dry_run(small_site, metric_message())

    rows, letters, observed = shown["rows"], shown["dead_letters"], shown["observed"]
    [refused] = letters if mode == "enforce" else observed
    assert refused["reason"] == "not-authorised"
    assert "ce01.example.org" in refused["error"]
    assert (len(rows), len(letters)) == ((0, 1) if mode == "enforce" else (1, 0))


def test_without_a_database_the_built_in_classes_are_known(small_site: Site) -> None:
    small_site.config.write_text(
        "[consumer]" + small_site.config.read_text().split("[consumer]")[1]
    )
    small_site.edit('class = "metricOutput"', "")

    first, second = dry_run(small_site, metric_message(GOOD), UNKNOWN)

    assert len(first["rows"]) == 2
    assert first["ignored_keys"] == {"colour": 1}
    assert (second["is_undecided"], second["dead_letters"]) == (True, [])


def test_a_dry_run_beside_the_daemon_takes_no_message_from_it(
    tmp_path: Path, postgres_url: str, rabbitmq: RabbitMQServer
) -> None:
    topic, log, errors = f"/topic/{uuid.uuid4().hex}", tmp_path / "log", tmp_path / "dry.log"
    site = make_site(tmp_path, postgres_url, [rabbitmq.url], topic)
    reader = Site(tmp_path / "dry.toml", site.database, site.name)
    logins = [as_role(postgres_url, role) for role in ("loader", "reader")]
    reader.config.write_text(site.config.read_text().replace(*logins))
    reader.config.chmod(0o600)
    command = reader.command("run", "--dry-run", "--json", "--count", "50")
    with site.daemon(log=log), errors.open("w") as stderr:
        eventually(lambda: "subscribed as" in log.read_text())
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        eventually(lambda: "subscribed as" in errors.read_text())
        publish(rabbitmq.host, rabbitmq.port, topic, results(50))
        output, _ = process.communicate(timeout=60)
        site.wait_for_rows(50)

    shown = [json.loads(line) for line in output.splitlines()]
    assert process.returncode == 0
    assert [len(document["rows"]) for document in shown] == [1] * 50
    assert shown[0]["rows"][0]["values"]["hostname"] == "ce01.example.org"
    assert site.scalar("SELECT sum(messages) FROM load_audit") == site.rows() == 50


@pytest.mark.parametrize(
    "arguments",
    ["--dry-run --drain", "--dry-run --to spool:///tmp/x", "--count 1", "--drain --for 1"],
)
def test_options_that_contradict_each_other_are_refused(small_site: Site, arguments: str) -> None:
    refused = small_site.run("run", *arguments.split())

    assert (refused.returncode, "--dry-run" in refused.stderr) == (64, True)
