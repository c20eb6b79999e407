"""sam-consume, sam-db and sam-report show, log, store and pass on no secret.

For sam-publish see publisher/test_canary. Commands that start no other program run in this process.
"""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError, URLError

import pytest
from sqlalchemy import make_url

from sam_pipeline.consumer.cli import main as sam_consume
from sam_pipeline.schema.program.command import BUG
from sam_pipeline.spark_jobs.cli import main as sam_report
from sam_pipeline.sql.cli import main as sam_db
from tests.services.postgres import PostgresServer, fresh_database
from tests.services.process import free_ports
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.builders import metric_message, metric_result
from tests.support.canary import Watched, assert_hidden, command_lines, stored_in
from tests.support.commands import PROGRAMS
from tests.support.consumer.site import eventually, fill_spool, stop
from tests.support.reports.database import DAY, PROFILE, Grid

USER = "canary"
OF_DATABASE = "canary-of-the-database"
OF_BROKER = "canary-of-the-broker"
CANARIES = (OF_DATABASE, OF_BROKER)
TIMES = f"--start {DAY}T08:00Z --end {DAY}T12:00Z --reason x"

PROGRAM = {"sam-db": sam_db, "sam-consume": sam_consume, "sam-report": sam_report}
BEFORE_THE_REPORT = (
    "sam-db upgrade",
    "sam-db current --json",
    "sam-db check",
    "sam-db check --json",
    "sam-db repair",
    "sam-db classes",
    "sam-db sql --dialect postgresql",
    "sam-db partitions --ahead 1",
    f"sam-db downtime add --site A {TIMES}",
    "sam-db downtime list --json",
    "sam-db import records results.txt",
    "sam-db prune --keep-audit 9000d --json",
    "sam-consume check",
    "sam-consume check --connect --json",
    "sam-consume run --drain --timeout 1 --json --log-format json",
    "sam-consume status",
    "sam-consume dead-letter list --json",
    "sam-consume dead-letter show 1",
    "sam-consume dead-letter replay --all --json",
    "sam-consume dead-letter edit 1 --header note=seen",
    "sam-consume dead-letter drop --all",
    f"sam-report exclusion add --group A {TIMES}",
    "sam-report exclusion list --json",
    "sam-report profile check test.toml",
    "sam-report now --json",
)
AFTER_THE_REPORT = (
    f"sam-report show --day {DAY} --json",
    f"sam-report explain --day {DAY} --site A",
    f"sam-report explain --day {DAY} --site A --ticket",
    f"sam-report trends --day {DAY}",
    f"sam-report site --day {DAY} --out pages",
    f"sam-report export --day {DAY} --format csv --out export",
    f"sam-report export --day {DAY} --format argo --out export",
    "sam-report seal --list --json",
)
WITHOUT_DATABASE = (
    "sam-db current",
    "sam-db upgrade",
    "sam-db check --json",
    "sam-consume check --json",
    "sam-consume run --drain --timeout 0",
    "sam-consume dead-letter list",
    f"sam-report show --day {DAY}",
)

Run = Callable[[str], int]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A command in this process with debug messages; nothing that it prints is secret."""

    def command(line: str) -> int:
        program, *arguments = line.split()
        code = PROGRAM[program]([*arguments, "-v"])
        out, err = capsys.readouterr()
        assert "Traceback" not in err, (line, err)
        assert_hidden(CANARIES, [out, err])
        return code

    return command


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
    write_configuration(tmp_path, url.render_as_string(hide_password=False), broker, password_file)
    (tmp_path / "test.toml").write_text(PROFILE)
    (tmp_path / "results.txt").write_text("\n".join(["hostName: ce01", "EOT", ""]))
    fill_spool(
        tmp_path / "spool",
        [metric_message(metric_result()), metric_message(metric_result(metricStatus="MAYBE"))],
    )
    return tmp_path


def write_configuration(
    directory: Path, url: str, broker: FakeBroker, password_file: str = ""
) -> None:
    (port,) = free_ports(1)
    file = directory / "sam.toml"
    file.write_text(f"""
[database]
url = "{url}"
[consumer]
name = "canary"
user = "sam"
{password_file}
brokers = ["{broker.url}", "spool://{directory}/spool"]
metrics_listen = "127.0.0.1:{port}"
[[consumer.subscription]]
destination = "/topic/grid.probe.metricOutput"
class = "metricOutput"
[report]
profiles = ["test.toml"]
""")
    file.chmod(0o600)


def test_no_command_shows_a_password(run: Run, site: Path, broker: FakeBroker) -> None:
    codes = {line: run(line) for line in BEFORE_THE_REPORT}

    assert {line: code for line, code in codes.items() if code not in (0, 65)} == {
        "sam-consume status": 69  # no daemon runs
    }
    # `check --connect` also tries whether it may publish without a login.
    assert {login.headers.get("passcode") for login in broker.logins} == {OF_BROKER, None}
    secret = [site / "sam.toml", site / "broker-password"]
    assert_hidden(CANARIES, stored_in(site, except_for=secret))


@pytest.mark.parametrize("site", ["the file"], indirect=True)
def test_neither_the_daemon_nor_a_report_shows_a_password(run: Run, site: Path) -> None:
    url, port = (
        line.partition(" = ")[2].strip('"') for line in settings(site, "url", "metrics_listen")
    )
    port = port.rpartition(":")[2]
    grid = Grid(url)
    grid.endpoint("A", "SRM", "h1")
    grid.result("SRM h1 put", "10:00", "CRITICAL")
    grid.dispose()
    watched = Watched(site, os.environ)
    with running(site) as daemon:
        eventually(lambda: "sam_consume_rows_total{" in answer(port, "metrics"))
        watched.seen += [answer(port, path) for path in ("metrics", "healthz", "readyz")]
        watched.seen += command_lines()
        status = [run("sam-consume status"), run("sam-consume status --json")]
        code = watched.run(PROGRAMS / "check_sam_consumer", "-v")
        stopped, _ = stop(daemon)
    reported = watched.run(PROGRAMS / "sam-report", "run", "--day", str(DAY), "-v", "--json")
    codes = {line: run(line) for line in AFTER_THE_REPORT}

    assert (status, stopped, reported) == ([0, 0], 0, 0)
    assert code in (0, 1)  # 1: the dead letter was counted already
    assert {line: code for line, code in codes.items() if code} == {}
    assert any("java" in text for text in watched.seen)
    assert_hidden(CANARIES, watched.seen)
    secret = [site / "sam.toml", site / "broker-password"]
    assert_hidden(CANARIES, stored_in(site, except_for=secret))


@pytest.mark.parametrize("site", ["the file"], indirect=True)
@pytest.mark.parametrize(
    "mistake",
    [
        (f":{OF_DATABASE}@", f":{OF_DATABASE}-no-more@"),
        (f":{OF_DATABASE}@", f":top@{OF_DATABASE}@"),
        ("127.0.0.1:", "127.0.0.1:1"),
        ("127.0.0.1:", f"{OF_DATABASE}@127.0.0.1:"),
        ('"\n[consumer]', f'?password={OF_DATABASE}&conect_timeout=1"\n[consumer]'),
    ],
)
def test_no_error_shows_a_password(run: Run, site: Path, mistake: tuple[str, str]) -> None:
    file = site / "sam.toml"
    file.write_text(file.read_text().replace(*mistake, 1))

    codes = [run(line) for line in WITHOUT_DATABASE]

    assert not {0, BUG} & {*codes}


@contextmanager
def running(site: Path) -> Iterator[subprocess.Popen[str]]:
    """The daemon, killed at the end of the block."""
    with (site / "log").open("w") as log:
        command = [PROGRAMS / "sam-consume", "run", "-v"]
        process = subprocess.Popen(command, stdout=log, stderr=log, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def settings(site: Path, *keys: str) -> Iterator[str]:
    lines = (site / "sam.toml").read_text().splitlines()
    return (line for line in lines if line.startswith(tuple(f"{key} " for key in keys)))


def answer(port: str, path: str) -> str:
    """What the daemon answers on its loopback port."""
    with suppress(URLError):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as response:
                return str(response.read().decode())
        except HTTPError as error:
            return error.read().decode()
    return ""
