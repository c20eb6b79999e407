"""`sam-consume run --dry-run`: what messages would become, without storing or taking anything."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.schema.messages.message import Message
from tests.services.broker import StompServer
from tests.services.postgres import as_role
from tests.support.accounts import account, open_directory
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, eventually, fill_spool, make_site, results

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


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = make_site(tmp_path, f"sqlite:///{tmp_path}/sam.db", [f"spool://{tmp_path}/in"])
    site.config.write_text(site.config.read_text().partition("[[")[0])
    return site


def dry_run(site: Site, count: int, *arguments: str) -> list[dict[str, Any]]:
    done = site.run("run", "--dry-run", "--json", "--count", str(count), *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def tree(site: Site) -> dict[str, tuple[int, int]]:
    """All files of the site's directory, with size and time of the last change."""
    paths = site.config.parent.rglob("*")
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


def test_it_shows_the_rows_dead_letters_and_ignored_keys_that_a_drain_stores(site: Site) -> None:
    fill_spool(site.config.with_name("in"), [metric_message(GOOD, BAD), UNKNOWN])

    first, second = dry_run(site, 2)
    drained = site.drain()

    assert [(row["record"], row["values"]["serviceFlavour"]) for row in first["rows"]] == [
        (1, "CE"),
        (1, "SE"),
    ]
    assert {row["class"] for row in first["rows"]} == {"metricOutput"}
    assert first["ignored_keys"] == {"colour": 1}
    [letter] = first["dead_letters"]
    assert (letter["record"], letter["reason"]) == (2, "bad-status")
    [letter] = second["dead_letters"]
    assert (letter["record"], letter["reason"]) == (None, "unknown-class")
    assert drained.summary["rows"] == 2
    assert drained.summary["dead_letters"] == {"bad-status": 1, "unknown-class": 1}


def test_a_dry_run_writes_no_file(site: Site) -> None:
    fill_spool(site.config.with_name("in"), results(3))
    before = tree(site)

    dry_run(site, 3)

    assert tree(site) == before


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_the_verdict_of_the_policy_is_shown(site: Site, mode: str) -> None:
    policy = site.config.with_name("publishers.toml")
    policy.write_text(POLICY.format(mode=mode))
    site.config.write_text(f'{site.config.read_text()}publishers = "{policy}"\n')
    fill_spool(site.config.with_name("in"), [metric_message()])

    [shown] = dry_run(site, 1)

    rows, letters, observed = shown["rows"], shown["dead_letters"], shown["observed"]
    refused = letters if mode == "enforce" else observed
    assert [item["reason"] for item in refused] == ["not-authorised"]
    assert "ce01.example.org" in refused[0]["error"]
    assert (len(rows), len(letters)) == ((0, 1) if mode == "enforce" else (1, 0))


def test_without_a_database_the_built_in_classes_are_known(site: Site) -> None:
    site.config.write_text(
        site.config.read_text().partition("[consumer]")[2].join(["[consumer]", ""])
    )
    fill_spool(site.config.with_name("in"), [metric_message(GOOD), UNKNOWN])

    done = site.run("run", "--dry-run", "--json", "--count", "2")
    first, second = map(json.loads, done.stdout.splitlines())

    assert "no database" in done.stderr
    assert len(first["rows"]) == 2
    assert first["ignored_keys"] == {"colour": 1}
    assert (second["is_undecided"], second["dead_letters"]) == (True, [])


@pytest.fixture
def directory() -> Iterator[Path]:
    with open_directory() as directory:
        yield directory


def test_who_may_only_read_the_sqlite_file_and_the_spool_gets_an_answer(directory: Path) -> None:
    site = make_site(directory, f"sqlite:///{directory}/sam.db", [f"spool://{directory}/in"])
    site.config.write_text(site.config.read_text().partition("[[")[0])
    fill_spool(directory / "in", [metric_message()])
    for path in directory.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    reader = account(4711, directory)
    before = {*directory.iterdir()}

    answer = reader.run(
        *("sam-consume", "--config", site.config, "run", "--dry-run", "--json", "--count", "1")
    )

    assert answer.code == 0, str(answer)
    assert [row["record"] for row in answer.json["rows"]] == [1]
    assert {*directory.iterdir()} == before


@pytest.mark.parametrize(
    ("broker", "role"),
    [("activemq", "reporter"), ("artemis", "loader"), ("rabbitmq", "reader")],
    indirect=["broker"],
)
def test_a_dry_run_beside_the_daemon_takes_no_message_from_it(
    tmp_path: Path, postgres_url: str, broker: StompServer, role: str
) -> None:
    topic, log = f"/topic/{uuid.uuid4().hex}", tmp_path / "log"
    site = make_site(tmp_path, postgres_url, [broker.url], topic)
    other = tmp_path / "dry.toml"
    other.write_text(
        site.config.read_text().replace(
            as_role(postgres_url, "loader"), as_role(postgres_url, role)
        )
    )
    other.chmod(0o600)
    reader = Site(other, site.database, site.name)
    with site.daemon(log=log):
        eventually(lambda: "subscribed as" in log.read_text())
        errors = tmp_path / "dry.log"
        with errors.open("w") as stderr:
            command = reader.command("run", "--dry-run", "--json", "--count", "50")
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        eventually(lambda: "subscribed as" in errors.read_text())
        publish(broker.host, broker.port, topic, results(50))
        output, _ = process.communicate(timeout=60)
        site.wait_for_rows(50)

    shown = [json.loads(line) for line in output.splitlines()]
    assert process.returncode == 0
    assert [len(document["rows"]) for document in shown] == [1] * 50
    assert shown[0]["rows"][0]["values"]["hostname"] == "ce01.example.org"
    assert site.scalar("SELECT sum(messages) FROM load_audit") == 50
    assert site.rows() == 50


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dry-run", "--drain"],
        ["--dry-run", "--to", "spool:///tmp/x"],
        ["--count", "1"],
        ["--drain", "--for", "1"],
    ],
)
def test_options_that_contradict_each_other_are_refused(site: Site, arguments: list[str]) -> None:
    refused = site.run("run", *arguments)

    assert refused.returncode == 64
    assert "--dry-run" in refused.stderr
