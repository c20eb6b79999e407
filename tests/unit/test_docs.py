"""The pages of docs/: generated tables are current, links lead somewhere, the example is whole."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from docs.tables import DOCS, TABLES, generated, named
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.tables import SubscriptionConfig
from sam_pipeline.publisher.settings import BrokerTable, CopyTable, PublisherConfig

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


def test_the_example_for_production_shows_every_key_and_no_other() -> None:
    """deploy/sam.toml, with the keys and tables that are comments there."""
    text = (DOCS.parent / "deploy" / "sam.toml").read_text()
    example = tomllib.loads(re.sub(r"^# (?=\w+ = |\[\[)", "", text, flags=re.MULTILINE))
    consumer, publisher = example["consumer"], example["publisher"]

    for settings, tables, absent in (
        (ConsumerConfig, [consumer], set()),
        (SubscriptionConfig, consumer["subscription"], set()),
        (PublisherConfig, [publisher], set()),
        (BrokerTable, publisher["broker"], set()),
        (CopyTable, publisher["copy"], {"broker"}),
    ):
        keys = {key.name for key in settings.KEYS.values()} - absent
        assert {key for table in tables for key in table} == keys


def headings(path: Path) -> set[str]:
    """As links name them."""
    lines = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}
