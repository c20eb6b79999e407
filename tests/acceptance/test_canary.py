"""sam-consume, sam-db and sam-report show, log, store and pass on no secret.

For sam-publish see publisher/test_canary. Commands that start no other program run in this process.
"""

from __future__ import annotations

import os
import signal
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError, URLError

import pytest
from sqlalchemy import make_url

from sam_pipeline.consumer.core import loop
from sam_pipeline.schema.program.command import BUG
from tests.services.postgres import PostgresServer, fresh_database
from tests.services.process import free_ports
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.builders import metric_message, metric_result
from tests.support.canary import Watched, assert_hidden, command_lines, stored_in
from tests.support.commands import PROGRAMS, Workplace
from tests.support.consumer.site import fill_spool
from tests.support.invoke import invoke
from tests.support.reports.database import DAY, PROFILE, Grid
from tests.support.waiting import eventually

USER = "canary"
OF_DATABASE = "canary-of-the-database"
OF_BROKER = "canary-of-the-broker"
CANARIES = (OF_DATABASE, OF_BROKER)
TIMES = f"--start {DAY}T08:00Z --end {DAY}T12:00Z --reason x"

BEFORE_THE_REPORT = (
    "sam-db upgrade",
    "sam-db check",
    "sam-db repair",
    f"sam-db downtime add --site A {TIMES}",
    "sam-db downtime list --json",
    "sam-db import records results.txt",
    "sam-consume check",
    "sam-consume check --connect --json",
    "sam-consume run --drain --timeout 1 --json --log-format json",
    "sam-consume status",
    "sam-consume dead-letter list --json",
    "sam-consume dead-letter show 1",
    "sam-consume dead-letter replay --all --json",
    "sam-consume dead-letter edit 1 --header note=seen",
    f"sam-report exclusion add --site A {TIMES}",
    "sam-report profile check test.toml",
    "sam-report now --json",
)
AFTER_THE_REPORT = (
    f"sam-report show --day {DAY} --json",
    f"sam-report explain --day {DAY} --site A",
    f"sam-report explain --day {DAY} --site A --ticket",
    f"sam-report trends --day {DAY}",
    f"sam-report pages --day {DAY} --out pages",
    f"sam-report export --day {DAY} --format csv --out export",
    f"sam-report export --day {DAY} --format argo --out export",
    "sam-report seal list --json",
    "sam-report status --json",
)
WITHOUT_DATABASE = (
    "sam-db version",
    "sam-db upgrade",
    "sam-db check --json",
    "sam-consume check --json",
    "sam-consume run --drain --timeout 0",
    "sam-consume dead-letter list",
    f"sam-report show --day {DAY}",
)


def run(line: str) -> int:
    """A command in this process with debug messages; nothing that it prints is secret."""
    answer = invoke(*line.split(), "-v")
    assert "Traceback" not in answer.err, str(answer)
    assert_hidden(CANARIES, [answer.out, answer.err])
    return answer.code


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(server="ActiveMQ/6.1.0") as server:
        yield server


@pytest.fixture(params=["the file", "variables"])
def site(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    postgres: PostgresServer,
    broker: FakeBroker,
) -> Path:
    """A directory whose programs get their passwords from `sam.toml` and a file, or variables."""
    attributes = f"LOGIN SUPERUSER PASSWORD '{OF_DATABASE}'"
    postgres.execute(
        f"DO $$ BEGIN CREATE ROLE {USER} {attributes};"
        " EXCEPTION WHEN duplicate_object THEN NULL; END $$"
    )
    for name in [*os.environ]:
        if name.startswith(("SAM_", "PG", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setattr(loop, "SILENCE_S", 0.3)
    monkeypatch.chdir(tmp_path)
    url = make_url(fresh_database(postgres)).set(username=USER, password=OF_DATABASE)
    password_file = 'password_file = "broker-password"'
    if request.param == "variables":
        url = url._replace(password=None)
        monkeypatch.setenv("PGPASSWORD", OF_DATABASE)
        monkeypatch.setenv("SAM_CONSUMER_PASSWORD", OF_BROKER)
        password_file = ""
    (tmp_path / "broker-password").write_text(OF_BROKER)
    (tmp_path / "broker-password").chmod(0o600)
    (tmp_path / "state").mkdir()
    (port,) = free_ports(1)
    (tmp_path / "sam.toml").write_text(f"""
[database]
url = "{url.render_as_string(hide_password=False)}"
[consumer]
name = "canary"
user = "sam"
{password_file}
brokers = ["{broker.url}", "spool://{tmp_path}/spool"]
metrics_listen = "127.0.0.1:{port}"
[[consumer.subscription]]
destination = "/topic/grid.probe.metricOutput"
class = "metricOutput"
[report]
profiles = ["test.toml"]
""")
    (tmp_path / "sam.toml").chmod(0o600)
    (tmp_path / "test.toml").write_text(PROFILE)
    (tmp_path / "results.txt").write_text("\n".join(["hostName: ce01", "EOT", ""]))
    fill_spool(
        tmp_path / "spool",
        [metric_message(metric_result()), metric_message(metric_result(metricStatus="MAYBE"))],
    )
    return tmp_path


def test_no_command_shows_a_password(site: Path, broker: FakeBroker) -> None:
    codes = {line: run(line) for line in BEFORE_THE_REPORT}

    assert {line: code for line, code in codes.items() if code not in (0, 65, 78)} == {
        "sam-consume status": 69  # no daemon runs; `check` notices that the server is a fast one
    }
    # `check --connect` also tries whether it may publish without a login.
    assert {login.headers.get("passcode") for login in broker.logins} == {OF_BROKER, None}
    secret = [site / "sam.toml", site / "broker-password"]
    assert_hidden(CANARIES, stored_in(site, except_for=secret))


@pytest.mark.parametrize("site", ["the file"], indirect=True)
def test_neither_the_daemon_nor_a_report_shows_a_password(site: Path) -> None:
    settings = tomllib.loads((site / "sam.toml").read_text())
    url, port = settings["database"]["url"], settings["consumer"]["metrics_listen"].split(":")[1]
    grid = Grid(url)
    grid.endpoint("A", "SRM", "h1")
    grid.result("SRM h1 put", "10:00", "CRITICAL")
    grid.dispose()
    watched = Watched(site, os.environ)
    place = Workplace(site, "", "sqlite://", environment=os.environ)
    with place.running("sam-consume", "run", "-v") as daemon:
        eventually(lambda: "sam_consume_rows_total{" in answer(port, "metrics"))
        watched.seen += [answer(port, path) for path in ("metrics", "healthz", "readyz")]
        watched.seen += command_lines()
        # The state file is written once a second.
        eventually(lambda: run("sam-consume status") == 0)
        status = [run("sam-consume status"), run("sam-consume status --json")]
        code = watched.run(PROGRAMS / "check_sam_consumer", "-v")
        daemon.send_signal(signal.SIGTERM)
        stopped = daemon.wait(60)
    reported = watched.run(PROGRAMS / "sam-report", "run", "--day", str(DAY), "-v", "--json")
    codes = {line: run(line) for line in AFTER_THE_REPORT}

    assert (status, stopped, reported) == ([0, 0], 0, 0)
    assert code in (0, 1)  # 1: the dead letter was counted already
    assert {line: code for line, code in codes.items() if code} == {}
    assert any("java" in text for text in watched.seen)
    assert_hidden(CANARIES, watched.seen)
    secret = [site / "sam.toml", site / "broker-password"]
    assert_hidden(CANARIES, stored_in(site, except_for=secret))


MISTAKES = (
    (f":{OF_DATABASE}@", f":{OF_DATABASE}-no-more@"),
    (f":{OF_DATABASE}@", f":top@{OF_DATABASE}@"),
    ("127.0.0.1:", "127.0.0.1:1"),
    ("127.0.0.1:", f"{OF_DATABASE}@127.0.0.1:"),
    ('"\n[consumer]', f'?password={OF_DATABASE}&conect_timeout=1"\n[consumer]'),
)


@pytest.mark.parametrize("site", ["the file"], indirect=True)
def test_no_error_shows_a_password(site: Path) -> None:
    file, text = site / "sam.toml", (site / "sam.toml").read_text()
    for mistake in MISTAKES:
        file.write_text(text.replace(*mistake, 1))
        assert not {0, BUG} & {run(line) for line in WITHOUT_DATABASE}, mistake


def answer(port: str, path: str) -> str:
    """What the daemon answers on its loopback port."""
    with suppress(URLError):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as response:
                return str(response.read().decode())
        except HTTPError as error:
            return error.read().decode()
    return ""
