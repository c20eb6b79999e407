"""Every command and program of docs/publisher.md works, in the order of the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sam_pipeline.publisher.settings.broker_config import BrokerTable
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.publisher.settings.copy_config import CopyTable
from sam_pipeline.publisher.settings.load import load_config
from sam_pipeline.schema.identity.keys import make_key
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.commands import Workplace
from tests.support.page import Page, production_example, shell

PAGE = Page("docs/publisher.md")
COMMANDS = [text for text in PAGE.texts("sh") if "--copy" not in text]
OF_COPIES = PAGE.texts("sh", "Two sets of brokers")


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


@pytest.fixture
def place(tmp_path: Path, broker: FakeBroker) -> Workplace:
    return Workplace(
        tmp_path,
        broker=broker.url,
        database="",
        environment={"SAM_PUBLISHER_BROKERS": broker.url},
    )


def test_every_command_succeeds(place: Workplace, broker: FakeBroker) -> None:
    done = shell(place, *COMMANDS)

    assert done.code == 0, str(done)
    assert [frame.headers["recordCount"] for frame in broker.taken] == [*"11121"]
    assert "LOAD OK" in done.out


def test_without_a_broker_the_results_are_spooled_where_the_page_says(place: Workplace) -> None:
    alone = replace(place, environment={})
    done = shell(alone, *(block for block in COMMANDS if "sam-publish check" not in block))

    assert done.code == 0, str(done)
    assert DirectoryQueue(place.directory / "shared-spool").count() == 1
    assert place.spooled("state/sam/spool") == 4


def test_the_commands_for_nagios_publish_what_its_macros_say(
    place: Workplace, broker: FakeBroker
) -> None:
    macros = {
        "SERVICEDESC": "org.example.Disk",
        "SERVICESTATE": "CRITICAL",
        "HOSTSTATE": "UNREACHABLE",
        "HOSTNAME": "se01.example.org",
        "_SERVICEFLAVOUR": "SE",
        "LASTSERVICECHECK": "1795176000",
        "LASTHOSTCHECK": "1795176000",
        "SERVICEOUTPUT": r"-1 % left in C:\new",
        "HOSTOUTPUT": "-",
        "LONGSERVICEOUTPUT": r"first line\nC:\\new\n",
        "LONGHOSTOUTPUT": "-",
        "SERVICEPERFDATA": "free=-1%;5;2",
        "HOSTPERFDATA": "",
    }
    (definitions,) = PAGE.texts("cfg")
    lines = re.findall(r"command_line +(.*)", definitions.replace("\\\n", " "))
    commands = [re.sub(r"\$(\w+)\$", lambda macro: macros[macro[1]], line) for line in lines]

    done = shell(place, *commands)

    assert (done.code, done.out) == (0, ""), str(done)
    service, host = (frame.body.decode() for frame in broker.taken)
    assert "metricStatus: CRITICAL\n" in service
    assert "summaryData: -1 % left in C:\\new\n" in service
    assert "performanceData: free=-1%;5;2\n" in service
    assert service.endswith("detailsData: first line\nC:\\new\nEOT\n")
    assert "metricStatus: UNKNOWN\n" in host
    assert host.endswith("detailsData: -\nEOT\n")


def test_the_script_publishes(place: Workplace, broker: FakeBroker) -> None:
    (script,) = PAGE.texts("python")
    place.write("probe.py", script)

    done = shell(place, "python probe.py")

    assert done.code == 0, str(done)
    [frame] = broker.taken
    assert frame.headers["recordCount"] == "1"
    assert b"metricName: org.example.Ping\n" in frame.body


def test_the_commands_for_copies_succeed(place: Workplace, broker: FakeBroker) -> None:
    place.write(
        "sam.toml", f'[publisher]\n[[publisher.copy]]\nname = "region"\nbrokers = ["{broker.url}"]'
    )
    done = shell(place, *PAGE.texts("sh", "A result")[:1], *OF_COPIES)

    assert done.code == 0, str(done)
    ids = [frame.headers["samMessageId"] for frame in broker.taken]
    assert ids[0] == ids[1]
    assert len(ids) == 4  # and a check message for each set


@pytest.mark.parametrize("text", PAGE.texts("toml"))
def test_every_configuration_is_one(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in re.findall(r'signing_key_file = "([\w.-]+)"', text):
        make_key(tmp_path / name)
    for name in re.findall(r'(?<!signing_key_)file = "([\w.-]+)"', text):
        (tmp_path / name).write_text("secret\n")
        (tmp_path / name).chmod(0o600)
    text = text.replace("certificate_file", "# certificate_file")  # a real one is asked for
    (tmp_path / "sam.toml").write_text(text)
    monkeypatch.setenv("SAM_CONFIG", str(tmp_path / "sam.toml"))

    config = load_config(None, {})

    assert config.brokers


def test_the_example_for_production_shows_every_key_and_no_other() -> None:
    section = production_example()["publisher"]

    for config, tables in (
        (PublisherConfig, [section]),
        (BrokerTable, section["broker"]),
        (CopyTable, section["copy"]),
    ):
        keys = {about.get("key", name) for name, about in config.metadata().items()} - {None}
        if config is CopyTable:
            keys.remove("broker")  # mentioned in a comment
        assert {key for table in tables for key in table} == keys
