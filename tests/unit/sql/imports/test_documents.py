"""Which documents a feed consists of, and how the pages of GOCDB lead to each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_changes import Window
from sam_pipeline.sql.imports.http.documents import documents_of, next_page
from sam_pipeline.sql.imports.http.feed_config import FeedConfig
from tests.support.database.gocdb_files import service_endpoint, write

GOCDB = "https://goc.example.org/gocdbpi"
PUBLIC = f"{GOCDB}/public/?method=get_service_endpoint"
WINDOW = Window("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")


def urls(kind: str, url: str, **settings: Any) -> list[str]:
    return [document.url for document in documents_of(FeedConfig(kind, url, **settings), WINDOW)]


@pytest.mark.parametrize("url", [GOCDB, f"{GOCDB}/", f"{GOCDB}/public/"])
def test_without_a_certificate_gocdb_is_asked_in_public(url: str) -> None:
    days = "windowstart=2026-11-01&windowend=2026-12-01"

    assert urls("gocdb", url) == [
        f"{PUBLIC}&next_cursor=0",
        f"{GOCDB}/public/?method=get_site_list",
        f"{GOCDB}/public/?method=get_downtime_nested_services&{days}&next_cursor=0",
    ]


def test_with_a_certificate_gocdb_shows_the_scopes_of_sites(tmp_path: Path) -> None:
    settings = {"certificate_file": tmp_path, "read": ("groups",)}

    assert urls("gocdb", f"{GOCDB}?scope=EGI,wlcg&scope_match=any", **settings) == [
        f"{GOCDB}/private/?method=get_site&scope=EGI%2Cwlcg&scope_match=any&next_cursor=0"
    ]


def test_cric_and_a_vo_feed_have_no_pages() -> None:
    assert urls("cric", "https://cric.example.org/") == [
        "https://cric.example.org/api/core/service/query/?json",
        "https://cric.example.org/api/core/federation/query/?json",
    ]
    assert urls("vofeed", "https://vo.example.org/feed.xml?v=1") == [
        "https://vo.example.org/feed.xml?v=1"
    ]


def page(*, elements: int, link: str | None, count: str = "", size: str = "") -> str:
    href = f'<link rel="next" href="{link}"/>' if link is not None else ""
    counts = f"<count>{count}</count><max_page_size>{size}</max_page_size>"
    services = "".join(service_endpoint(host=f"h{number}") for number in range(elements))
    return f"<results><meta>{href}{counts}</meta>{services}</results>"


def after(tmp_path: Path, text: str, seen: set[str] | None = None) -> str | None:
    """The URL of the page after one."""
    path = write(tmp_path / "page.xml", text)
    return next_page(f"{PUBLIC}&next_cursor=0", path, set() if seen is None else seen)


def test_only_the_cursor_of_a_link_is_used(tmp_path: Path) -> None:
    link = "http://inside.invalid:8080/gocdbpi/x?method=other&amp;next_cursor=117"

    assert after(tmp_path, page(elements=2, link=link, count="2", size="2")) == (
        f"{PUBLIC}&next_cursor=117"
    )


@pytest.mark.parametrize(
    "text",
    [
        "<results/>",
        page(elements=0, link="/?next_cursor=7", count="0", size="100"),
        page(elements=0, link=None),
        page(elements=3, link="/?next_cursor=7", count="3", size="100"),
    ],
)
def test_a_page_that_is_not_full_is_the_last(tmp_path: Path, text: str) -> None:
    assert after(tmp_path, text) is None


@pytest.mark.parametrize(
    ("text", "seen", "problem"),
    [
        (page(elements=1, link="/?next_cursor=7", count="2", size="2"), (), "1 of 2 elements"),
        (page(elements=2, link=None, count="2", size="2"), (), "next_cursor=''"),
        (page(elements=2, link="/?other=7", count="2", size="2"), (), "next_cursor=''"),
        (page(elements=2, link="/?next_cursor=7", count="2", size="2"), ("7",), "next_cursor='7'"),
        ("<results/>", ("7",), "without <meta>"),
        ("<results><meta>", (), "the file ends here"),
        ("<error>Unsupported parameter</error>", (), "begins with <error>"),
    ],
)
def test_half_a_page_or_one_that_leads_nowhere_is_refused(
    tmp_path: Path, text: str, seen: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(BadInput, match=problem):
        after(tmp_path, text, set(seen))
