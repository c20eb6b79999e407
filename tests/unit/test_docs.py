"""The pages of docs/: generated tables are current, links lead somewhere, the example is whole."""

from __future__ import annotations

import argparse
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from deploy.manual.parsers import parser_of
from docs.tables import DOCS, TABLES, generated, named
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.tables import (
    BrokerConfig,
    DoorConfig,
    SilenceConfig,
    SubscriptionConfig,
)
from sam_pipeline.publisher.settings import BrokerTable, CopyTable, PublisherConfig
from sam_pipeline.schema.program.help import subparsers
from sam_pipeline.spark_jobs.config import ReportConfig
from sam_pipeline.sql.archive.config import ArchiveConfig
from sam_pipeline.sql.database.config import DatabaseConfig
from sam_pipeline.sql.imports.feed_config import FeedConfig
from sam_pipeline.sql.removal.prune import PruneConfig

ROOT = DOCS.parent
PAGES = sorted(DOCS.glob("*.md"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_tables_are_those_of_the_code(path: Path) -> None:
    page = path.read_text(encoding="utf-8")

    assert page == generated(page), "run `make docs`"


def test_every_table_is_on_one_page() -> None:
    pages = [path.read_text(encoding="utf-8") for path in PAGES]

    assert sorted(name for page in pages for name in named(page)) == sorted(TABLES)


@pytest.mark.parametrize("path", [*PAGES, ROOT / "README.md"], ids=lambda path: path.name)
def test_every_path_on_a_page_exists(path: Path) -> None:
    rooms = "schema|publisher|consumer|sql|spark_jobs|tests|deploy|docs"
    paths = re.findall(rf"`((?:{rooms})/[\w./-]*)`", path.read_text(encoding="utf-8"))

    assert [name for name in paths if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", [*PAGES, ROOT / "README.md"], ids=lambda path: path.name)
def test_links_lead_to_files_and_headings(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", path.read_text(encoding="utf-8"))

    for name, anchor in links:
        target = path.parent / name if name else path
        assert target.exists(), name
        if anchor:
            assert anchor in headings(target), f"{name}#{anchor}"


def test_the_readme_leads_to_every_page() -> None:
    links = re.findall(r"\]\(docs/([\w-]+\.md)", (ROOT / "README.md").read_text(encoding="utf-8"))

    assert {path.name for path in PAGES} - {*links} == set()


COMMAND = r"""(?x)
    (?: ^ExecStart=/usr/bin/ | ^(?:\w+=\S+\ )* | ` | [|]\ )
    (
        sam-(?:publish|consume|db|report)
        (?: \ (?:\\\n\ *)? (?: "[^"\n]*" | '[^'\n]*' | [^\s`|#;&>]+ ) )*
    )
"""
"""On a line of its own, in a unit, in backquotes or behind a pipe."""
WITH_COMMANDS = [*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "deploy" / "sam.toml"]


@cache
def parser(program: str) -> argparse.ArgumentParser:
    return parser_of(program)


@pytest.mark.parametrize(
    "path", [*WITH_COMMANDS, *(ROOT / "deploy").rglob("*.service")], ids=lambda path: path.name
)
def test_every_command_on_a_page_or_in_a_unit_exists_with_its_options(path: Path) -> None:
    unknown = []
    for command in re.findall(COMMAND, path.read_text(encoding="utf-8"), re.MULTILINE):
        [program, *words] = re.sub(r"\"[^\"]*\"|'[^']*'|\\\n", " ", command).split()
        current, wants_command = parser(program), True
        for word in (word.strip(".,:()[]{}\"'") for word in words):
            name = word.partition("=")[0]
            if word in ("", "--", "help"):
                break
            if re.fullmatch(r"--?[a-z][\w-]*", name):
                if name not in current._option_string_actions:
                    unknown.append(f"{command}: {name}")
            elif wants_command and (actions := next(subparsers(current), None)):
                if word in actions.choices:
                    current = actions.choices[word]
                elif re.fullmatch("[a-z-]+", word):
                    unknown.append(f"{command}: {word}")
                    wants_command = False

    assert unknown == []


def test_the_example_for_production_shows_every_key_and_no_other() -> None:
    """deploy/sam.toml, with the keys and tables that are comments there."""
    text = (DOCS.parent / "deploy" / "sam.toml").read_text()
    example = tomllib.loads(re.sub(r"^# (?=\w+ = |\[\[)", "", text, flags=re.MULTILINE))
    consumer, publisher = example["consumer"], example["publisher"]

    for settings, tables, absent in (
        (ConsumerConfig, [consumer], set()),
        (SubscriptionConfig, consumer["subscription"], set()),
        (BrokerConfig, consumer["broker"], set()),
        (SilenceConfig, consumer["silence"], set()),
        (DoorConfig, [consumer["door"]], set()),
        (PublisherConfig, [publisher], set()),
        (BrokerTable, publisher["broker"], set()),
        (CopyTable, publisher["copy"], {"broker"}),
        (DatabaseConfig, [example["database"]], set()),
        (ReportConfig, [example["report"]], set()),
        (FeedConfig, example["import"]["feed"], set()),
        (PruneConfig, [example["prune"]], set()),
        (ArchiveConfig, [example["archive"]], set()),
    ):
        keys = {key.name for key in settings.KEYS.values()} - absent
        assert {key for table in tables for key in table} == keys


def headings(path: Path) -> set[str]:
    """As links name them."""
    lines = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}
