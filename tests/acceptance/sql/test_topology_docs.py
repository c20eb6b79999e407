"""What docs/topology.md tells a site operator to type works, in the order of the page."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import Answer, Workplace, embedded
from tests.support.database.gocdb_files import (
    document,
    listed_site,
    nested_downtime,
    service_endpoint,
)

PAGE = (Path(__file__).parents[3] / "docs" / "topology.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OPTION = re.compile(r"(?<![\w`-])--[a-z][a-z-]+")

# GOCDB is a site on the net: here its answers are files by method and page.
CURL = """#!/bin/bash
[[ "$*" =~ method=([a-z_]+) ]] && method=${BASH_REMATCH[1]}
[[ "$*" =~ next_cursor=([0-9]+) ]] && method=$method-${BASH_REMATCH[1]}
cat "gocdb/$method.xml"
"""
SERVICES = [service_endpoint(host=f"ce{number}.example.org") for number in (11, 12)]
ANSWERS = {
    "get_service_endpoint": document(*SERVICES),
    "get_service_endpoint-0": document(SERVICES[0]),
    "get_service_endpoint-100": document(SERVICES[1]),
    "get_site_list": document(listed_site()),
    "get_downtime_nested_services": document(nested_downtime(("ce11.example.org", "CE"))),
}


def blocks() -> list[str]:
    return [text for language, text in BLOCK.findall(PAGE) if language == "sh"]


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    place = embedded(tmp_path)
    place.write("bin/curl", CURL).chmod(0o755)
    for method, answer in ANSWERS.items():
        place.write(f"gocdb/{method}.xml", answer)
    return place


def run(place: Workplace, *commands: str) -> Answer:
    """In one shell, as one person would type them."""
    script = "\n".join(["set -euo pipefail", "PATH=$PWD/bin:$PATH", *commands])
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=place.directory,
        env=place.clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
    )
    return Answer(["bash"], done.returncode, done.stdout, done.stderr)


def test_every_command_succeeds_and_does_what_the_page_says(place: Workplace) -> None:
    # Reports begin with the first result, and so do the days that can be due.
    of = ("--metric", "org.example.Ping", "--host", "ce01.example.org", "--flavour", "CE")
    place.succeed(
        "sam-publish", "result", *of, "--status", "OK", "--timestamp", "2026-01-02T00:00:00Z"
    )

    done = run(place, *blocks())

    assert done.code == 0, str(done)
    assert "nothing was written; these rows would be:" in done.out
    assert "due: 2026-03-02 2026-03-03" in done.out
    found = place.succeed("sam-db", "downtime", "list", "--all", "--json").json
    by_id = {row["downtime_id"]: row for row in found}
    assert by_id["power-cut"]["cancelled"] is True
    assert by_id["5001G0"]["source"] == "gocdb"
    assert any(
        row["description"] == "new switches (jane)" and row["start_time"] == "2026-03-09T07:00:00Z"
        for row in found
    )


def test_the_nightly_job_again_changes_nothing(place: Workplace) -> None:
    nightly = [text for text in blocks() if "curl" in text and "page1" not in text]
    run(place, *nightly)

    again = run(place, *nightly)

    assert again.code == 0, str(again)
    counts = [line.split() for line in again.out.splitlines() if re.search(r" \d+$", line)]
    assert counts == [
        ["serviceEndpoint", "2", "0", "0", "0", "2", "0"],
        ["siteGroup", "NGI", "1", "0", "0", "0", "1", "0"],
        ["downtime", "1", "0", "0", "0", "1", "0"],
    ]


def test_every_option_it_names_is_there(place: Workplace) -> None:
    helps = "".join(
        place.succeed(*command.split(), "--help").out
        for command in (
            "sam-db import gocdb",
            "sam-db import csv",
            "sam-db downtime add",
            "sam-db downtime cancel",
            "sam-db downtime list",
            "sam-publish send",
            "sam-consume run",
        )
    )
    named = set(OPTION.findall(PAGE.replace("`", " ")))

    assert {option for option in named if option not in helps} <= {"--due"}  # of sam-report
