"""`sam-consume publishers`: who sent which records, as a table, as JSON and as a policy."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sam_pipeline.consumer.cli import main
from sam_pipeline.schema.identity.identity import uid_identity
from sam_pipeline.schema.identity.policy import OBSERVE
from sam_pipeline.schema.identity.policy_file import load_policy
from tests.services.postgres import PostgresServer, as_role, fresh_database
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.site import Site, fill_spool, make_site

ACCOUNT = uid_identity(os.geteuid())
HOST = "ce01.example.org"
GOOD = metric_message(metric_result(monitoringHost="nagios1"))
BAD = metric_message(metric_result(metricStatus="MAYBE"))


@pytest.fixture(params=["sqlite", "postgresql"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A site that has loaded a good result twice, and refused another."""
    url = f"sqlite:///{tmp_path}/sam.db"
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = fresh_database(server)
    site = make_site(tmp_path, url, [f"spool://{tmp_path}/spool"])
    fill_spool(tmp_path / "spool", [GOOD, GOOD, BAD])
    assert site.drain().code == 65
    if request.param == "postgresql":
        text = site.config.read_text()
        login = f'url = "{as_role(url, "loader")}"'
        assert text.count(login) == 1
        site.config.write_text(text.replace(login, f'url = "{as_role(url, "reader")}"'))
    yield site


def sam_consume(site: Site, *arguments: str) -> int:
    return main(["--config", str(site.config), "publishers", *arguments])


def test_the_table_has_a_line_for_each_identity_and_class(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sam_consume(site) == 0

    header, _, line = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["publisher", "class", "records"]
    assert line.split()[:3] == [ACCOUNT, "metricOutput", "1"]
    assert line.split()[-2:] == ["2", "1"]


def test_json_has_the_names_and_the_counts(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert sam_consume(site, "--json") == 0

    [publisher] = json.loads(capsys.readouterr().out)
    [of_class] = publisher.pop("classes")
    assert publisher == {"publisher": ACCOUNT, "name": None, "accepted": 2, "refused": 1}
    assert (of_class["class"], of_class["records"]) == ("metricOutput", 1)
    assert (of_class["hosts"], of_class["monitoring_hosts"]) == ([HOST], ["nagios1"])


def test_the_suggested_policy_is_valid_and_only_observes(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sam_consume(site, "--suggest") == 0

    file = tmp_path / "publishers.toml"
    file.write_text(capsys.readouterr().out)
    policy = load_policy(file)
    assert policy.mode == OBSERVE
    [publisher] = policy.publishers
    assert (publisher.identities, publisher.classes) == ((ACCOUNT,), ("metricOutput",))
    assert (publisher.hosts, publisher.monitoring_hosts) == ((HOST,), ("nagios1",))


def test_a_database_without_records_has_no_publishers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = make_site(tmp_path, f"sqlite:///{tmp_path}/sam.db", [f"spool://{tmp_path}/spool"])

    assert sam_consume(site, "--json") == 0

    assert json.loads(capsys.readouterr().out) == []
