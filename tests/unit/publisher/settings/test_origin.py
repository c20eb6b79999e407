"""Where messages come from, as their headers claim it."""

from __future__ import annotations

import os
import pwd
import sys
import threading
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from sam_pipeline.publisher import Publisher
from sam_pipeline.publisher.settings import origin
from sam_pipeline.publisher.settings.origin import origin_of, script_origin
from sam_pipeline.schema.messages.message import HOST, PROGRAM, USER
from sam_pipeline.schema.program.command import VERSION
from tests.support.builders import metric_message, metric_result
from tests.support.publishing import config_for

ROOT = Path(__file__).parents[4]


def test_the_version_is_that_of_the_package() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION


def test_the_library_names_the_script_in_what_it_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/probes/check_ping.py", "-H", "a"])

    with Publisher(config_for()) as publisher:
        publisher.add(metric_result())
        publisher.flush()
        (ours,) = publisher.last.spooled
        publisher.add_message(metric_message())
        publisher.flush()
        (theirs,) = publisher.last.spooled

    assert ours.headers[PROGRAM] == f"check_ping.py sam-publish/{VERSION}"
    assert not {HOST, PROGRAM, USER} & theirs.headers.keys()
    assert script_origin("", {})[PROGRAM].startswith("python ")


def test_the_login_name_is_otherwise_that_of_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    assert origin_of("a", {})[USER] == pwd.getpwuid(os.getuid()).pw_name
    assert origin_of("a", {"USER": "nagios"})[USER] == "nagios"
    assert origin_of("a", {"LOGNAME": "probe", "USER": "nagios"})[USER] == "probe"

    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    assert origin_of("a", {})[USER] == "uid 4000000000"


def test_a_silent_directory_service_costs_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(origin, "USER_TIMEOUT_S", 0.05)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: over.wait(60))

    assert origin_of("a", {})[USER] == f"uid {os.getuid()}"
    assert not over.is_set()
    over.set()


def test_values_fit_into_any_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="h\xf6st\n" * 100))

    headers = script_origin("/opt/a\0b: \udcff.py", {"LOGNAME": " jos\xe9 "})

    assert headers[HOST] == ("h?st?" * 100)[: origin.LONGEST]
    assert headers[PROGRAM].startswith("a?b: ?.py ")
    assert headers[USER] == "jos?"
    assert all(value.isascii() and value.isprintable() for value in headers.values())
