"""The commands of docs/topology.md work, in the order of the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.commands import Workplace, embedded
from tests.support.database.gocdb_files import (
    document,
    listed_site,
    nested_downtime,
    service_endpoint,
)
from tests.support.page import Page, shell

COMMANDS = Page("docs/topology.md").texts("sh")

# Instead of GOCDB on the network: its answers are files, by method and page.
CURL = """#!/bin/bash
[[ "$*" =~ method=([a-z_]+) ]] && method=${BASH_REMATCH[1]}
[[ "$*" =~ next_cursor=([0-9]+) ]] && method=$method-${BASH_REMATCH[1]}
cat "gocdb/$method.xml"
"""
WITH_CURL = "PATH=$PWD/bin:$PATH"
SERVICES = [service_endpoint(host=f"ce{number}.example.org") for number in (11, 12)]
ANSWERS = {
    "get_service_endpoint": document(*SERVICES),
    "get_service_endpoint-0": document(SERVICES[0]),
    "get_service_endpoint-100": document(SERVICES[1]),
    "get_site_list": document(listed_site()),
    "get_downtime_nested_services": document(nested_downtime(("ce11.example.org", "CE"))),
}


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    workplace = embedded(tmp_path)
    workplace.write("bin/curl", CURL).chmod(0o755)
    for method, answer in ANSWERS.items():
        workplace.write(f"gocdb/{method}.xml", answer)
    return workplace


def test_every_command_succeeds_and_does_what_the_page_says(workplace: Workplace) -> None:
    # Reports begin with the first result, and so do the days that can be due.
    of = ("--metric", "org.example.Ping", "--host", "ce01.example.org", "--flavour", "CE")
    workplace.succeed(
        "sam-publish", "result", *of, "--status", "OK", "--timestamp", "2026-01-02T00:00:00Z"
    )

    done = shell(workplace, WITH_CURL, *COMMANDS)

    assert done.code == 0, str(done)
    assert "nothing was written; these rows would be:" in done.out
    assert "due: 2026-03-02 2026-03-03" in done.out
    downtimes = workplace.succeed("sam-db", "downtime", "list", "--all", "--json").json
    by_id = {row["downtime_id"]: row for row in downtimes}
    assert by_id["power-cut"]["cancelled"] is True
    assert by_id["5001G0"]["source"] == "gocdb"
    assert any(
        row["description"] == "new switches (jane)" and row["start_time"] == "2026-03-09T07:00:00Z"
        for row in downtimes
    )


def test_repeating_the_nightly_job_changes_nothing(workplace: Workplace) -> None:
    nightly = [text for text in COMMANDS if "curl" in text and "page1" not in text]
    shell(workplace, WITH_CURL, *nightly)

    again = shell(workplace, WITH_CURL, *nightly)

    assert again.code == 0, str(again)
    counts = [line.split() for line in again.out.splitlines() if re.search(r" \d+$", line)]
    assert counts == [
        ["serviceEndpoint", "2", "0", "0", "0", "2", "0"],
        ["siteGroup", "NGI", "1", "0", "0", "0", "1", "0"],
        ["downtime", "1", "0", "0", "0", "1", "0"],
    ]
