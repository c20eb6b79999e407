"""Where messages come from, as their headers claim it."""

from __future__ import annotations

import os
import pwd
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sam_pipeline.publisher import Publisher, cli
from sam_pipeline.publisher.settings import origin
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.publisher.settings.origin import command_origin, origin_of, script_origin
from sam_pipeline.schema.messages.message import HOST, MESSAGE_ID, PROGRAM, USER
from sam_pipeline.schema.program.command import VERSION
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.builders import metric_message, metric_result

ROOT = Path(__file__).parents[4]
RESULT = ["--metric", "org.example.Ping", "--status", "OK", "--host", "a.example.org"]


@pytest.fixture
def spooled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DirectoryQueue]:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("LOGNAME", "nagios")
    monkeypatch.chdir(tmp_path)
    yield DirectoryQueue(tmp_path / "spool")


def headers_in(queue: DirectoryQueue) -> dict[str, str]:
    (name,) = queue.names()
    return dict(queue.read(name).headers)


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["version"] == VERSION


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("result", [*RESULT, "--flavour", "CE"]),
        ("send", ["results.txt"]),
        ("send", ["--raw", "results.txt"]),
    ],
)
def test_each_command_says_where_its_messages_come_from(
    spooled: DirectoryQueue, tmp_path: Path, command: str, arguments: list[str]
) -> None:
    (tmp_path / "results.txt").write_bytes(metric_message().body)

    assert cli.main([command, *arguments]) == 0

    headers = headers_in(spooled)
    assert headers[HOST] == os.uname().nodename
    assert headers[PROGRAM] == f"sam-publish/{VERSION} {command}"
    assert headers[USER] == "nagios"


def test_the_library_names_the_script(
    spooled: DirectoryQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/probes/check_ping.py", "-H", "a"])

    with Publisher(PublisherConfig(spool=spooled.path)) as publisher:
        publisher.add(metric_result())

    assert headers_in(spooled)[PROGRAM] == f"check_ping.py sam-publish/{VERSION}"


def test_a_message_that_somebody_else_made_gets_no_origin(spooled: DirectoryQueue) -> None:
    with Publisher(PublisherConfig(spool=spooled.path)) as publisher:
        publisher.add_message(metric_message())

    headers = headers_in(spooled)
    assert MESSAGE_ID in headers
    assert not {HOST, PROGRAM, USER} & headers.keys()


def test_without_a_login_name_in_the_environment_it_is_that_of_the_account() -> None:
    name = pwd.getpwuid(os.getuid()).pw_name

    assert origin_of("a", {})[USER] == name
    assert origin_of("a", {"USER": "nagios"})[USER] == "nagios"
    assert origin_of("a", {"LOGNAME": "probe", "USER": "nagios"})[USER] == "probe"


def test_a_directory_service_that_does_not_answer_costs_little_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(origin, "USER_TIMEOUT_S", 0.05)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: time.sleep(2))

    began = time.monotonic()
    headers = origin_of("a", {})

    assert headers[USER] == f"uid {os.getuid()}"
    assert time.monotonic() - began < 1


def test_an_account_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)

    assert origin_of("a", {})[USER] == "uid 4000000000"


def test_values_fit_into_any_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="h\xf6st\n" * 100))

    headers = script_origin("/opt/a\0b: \udcff.py", {"LOGNAME": " jos\xe9 "})

    assert headers[HOST] == ("h?st?" * 100)[: origin.LONGEST]
    assert headers[PROGRAM].startswith("a?b: ?.py ")
    assert headers[USER] == "jos?"
    assert all(value.isascii() and value.isprintable() for value in headers.values())


def test_an_interactive_python_is_named_so() -> None:
    assert script_origin("", {})[PROGRAM].startswith("python ")
    assert command_origin("send", {})[PROGRAM].endswith(" send")


@pytest.mark.parametrize("name", [HOST, PROGRAM, USER])
def test_no_option_replaces_the_origin(
    name: str, spooled: DirectoryQueue, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["result", *RESULT, "--flavour", "CE", "--header", f"{name}=x"])

    assert "is set by" in capsys.readouterr().err
