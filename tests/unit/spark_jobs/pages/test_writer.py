"""The file names of pages."""

from __future__ import annotations

import re
from unicodedata import normalize

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sam_pipeline.spark_jobs.pages.writer import group_page, site_page

NAMES = st.text(st.sampled_from("aAbB1-_~. /é\u0301eE") | st.characters(), max_size=100)


@pytest.mark.parametrize("site", ["CERN-PROD", "INFN-T1", "GRIF_LAL", "A" * 80])
def test_a_plain_name_of_a_site_is_the_name_of_its_page(site: str) -> None:
    assert site_page(site) == f"{site}.html"


@given(NAMES, NAMES)
@example("CERN PROD", "CERN-PROD")
@example("CERN-PROD", "Cern-Prod")
@example("é", "e\u0301")
def test_different_names_have_different_pages_on_every_file_system(one: str, other: str) -> None:
    def same_file(name: str) -> str:
        """What a file system that ignores case and normalises Unicode makes of the name."""
        return normalize("NFC", normalize("NFD", name).casefold())

    for page in (site_page, group_page):
        assert (same_file(page(one)) == same_file(page(other))) == (one == other)


@given(NAMES)
@example("CERN PROD")
def test_no_name_takes_the_page_of_another_by_looking_like_it(name: str) -> None:
    imitation = site_page(name).removesuffix(".html")

    assert imitation == name or site_page(imitation) != site_page(name)


@given(NAMES)
@example("INDEX")
@example("CON")
@example("LPT1")
@example("..")
@example("")
@example("\udc1b")
def test_a_page_is_a_portable_file_beside_the_others(name: str) -> None:
    stem = site_page(name).removesuffix(".html")

    assert re.fullmatch(r"[A-Za-z0-9_-]{1,80}(~[0-9a-f]{20})?", stem)
    assert not re.fullmatch(r"(?i)index|trends|changes|con|prn|aux|nul|com\d|lpt\d", stem)
