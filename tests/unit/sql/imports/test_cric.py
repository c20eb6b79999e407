"""Exports of CRIC become rows."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.cric import read_federations, read_services

CE = {
    "rcsite": "SITE-A",
    "type": "CE",
    "flavour": "HTCONDOR-CE",
    "endpoint": "CE01.example.org:9619",
    "state": "ACTIVE",
    "status": "production",
    "is_monitored": True,
    "usage": {"atlas": [{"site": "SITE_A"}]},
}
STORAGE = {
    "rcsite": "SITE-A",
    "type": "SE",
    "flavour": None,
    "endpoint": "",
    "protocols": {
        "xrootd": {"endpoint": "root://se01.example.org:1094"},
        "https": {"endpoint": "https://se01.example.org:443/dav"},
        "srm": {"endpoint": "httpg://se02.example.org:8446/srm"},
    },
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cric.json"


def services(file: Path, **by_name: object) -> list[tuple[str, ...]]:
    """Host, flavour, production, monitored and URL of each row."""
    file.write_text(json.dumps(by_name))
    keys = ("hostName", "serviceFlavour", "production", "monitored", "serviceURI")
    return [tuple(row[key] for key in keys) for row in read_services(file)]


def test_a_service_is_an_endpoint_of_its_site(file: Path) -> None:
    assert services(file, ce=CE) == [
        ("ce01.example.org", "HTCONDOR-CE", "Y", "Y", "CE01.example.org:9619")
    ]


def test_storage_has_an_endpoint_for_each_host_of_its_protocols(file: Path) -> None:
    assert sorted(services(file, se=STORAGE)) == [
        ("se01.example.org", "SE", "Y", "Y", "root://se01.example.org:1094"),
        ("se02.example.org", "SE", "Y", "Y", "httpg://se02.example.org:8446/srm"),
    ]


def test_states_decide_whether_a_service_counts(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    found = services(
        file,
        disabled={**CE, "state": "DISABLED"},
        testing={**CE, "endpoint": "a", "status": "testing"},
        silent={**CE, "endpoint": "b", "is_monitored": False},
        nowhere={**CE, "endpoint": None},
    )

    assert [row[:4] for row in found] == [
        ("a", "HTCONDOR-CE", "N", "Y"),
        ("b", "HTCONDOR-CE", "Y", "N"),
    ]
    assert "ignoring 1 service without an endpoint, such as nowhere" in caplog.text


def test_a_federation_groups_its_sites(file: Path) -> None:
    file.write_text(json.dumps({"CH-CERN": {"rcsites": ["A", "B", "A"]}, "EMPTY": {}}))

    member = {"groupName": "CH-CERN", "groupType": "federation"}
    assert read_federations(file) == [{"siteName": site, **member} for site in "AB"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"ce": {"rcsite": "A"', "not valid JSON"),
        ("", "not valid JSON"),
        ("<html></html>", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"ce": {}, "ce": {}}', "'ce' appears twice"),
        ("[]", "must be an object of named objects"),
        ('{"error": "no such query"}', "error: must be an object"),
        ('{"ce": {"rcsite": 1}}', "ce: rcsite must be a string"),
        ('{"ce": {"rcsite": "A", "protocols": []}}', None),
        ('{"ce": {"rcsite": "A", "protocols": [1]}}', "ce: protocols must be an object"),
        ('{"ce": {"rcsite": "A", "endpoint": "http://[x"}}', "ce: endpoint"),
        ('{"ce": {"type": "CE", "endpoint": "h"}}', "ce: .*siteName"),
        ('{"ce": {"rcsite": "A", "endpoint": "h"}}', "ce: .*serviceFlavour"),
    ],
)
def test_a_bad_export_is_refused_as_a_whole(file: Path, text: str, problem: str | None) -> None:
    file.write_text(text)

    if problem is None:
        assert read_services(file) == []
        return
    with pytest.raises(BadInput, match=problem):
        read_services(file)


@pytest.mark.parametrize("sites", ["A", [1], {"A": 1}])
def test_the_sites_of_a_federation_are_names(file: Path, sites: object) -> None:
    file.write_text(json.dumps({"CH-CERN": {"rcsites": sites}}))

    with pytest.raises(BadInput, match="CH-CERN: rcsites must be a list"):
        read_federations(file)
