"""The pages of docs/: tables that are generated are current, and links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.tables import DOCS, TABLES, generated, named

PAGES = sorted(DOCS.glob("*.md"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_tables_are_those_of_the_code(path: Path) -> None:
    page = path.read_text(encoding="utf-8")

    assert page == generated(page), "run `make docs`"


def test_every_table_is_on_one_page() -> None:
    pages = [path.read_text(encoding="utf-8") for path in PAGES]

    assert sorted(name for page in pages for name in named(page)) == sorted(TABLES)


@pytest.mark.parametrize("path", [*PAGES, DOCS.parent / "README.md"], ids=lambda path: path.name)
def test_links_lead_to_files_and_headings(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", path.read_text(encoding="utf-8"))

    for name, anchor in links:
        target = path.parent / name if name else path
        assert target.exists(), name
        if anchor:
            assert anchor in headings(target), f"{name}#{anchor}"


@pytest.mark.parametrize("path", [DOCS / "reports.md", DOCS.parent / "README.md"])
def test_the_pages_show_small_pictures_of_a_month_and_of_a_site(path: Path) -> None:
    names = re.findall(r"^!\[.+\]\((.+\.png)\)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    pictures = [path.parent / name for name in names]

    assert [picture.stem for picture in pictures] == ["month", "site"]
    for picture in pictures:
        content = picture.read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) <= 150_000


def headings(path: Path) -> set[str]:
    """As links name them."""
    lines = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}
