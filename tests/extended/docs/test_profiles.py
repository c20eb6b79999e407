"""The profiles, thresholds and mistakes of the pages about profiles."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from sam_pipeline.spark_jobs.errors import ProfileError
from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.profiles.thresholds import read_range, triggers
from tests.extended.docs.page import ROOT, blocks

PAGES = ("profiles", "profiles-reference")
TOML = [
    text for page in PAGES for (language, _), text in blocks(page).items() if language == "toml"
]
BASE = """\
name = "x"
validity_s = "off"
flavours.CE.metrics = ["org.sam.Ping"]
"""


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def rows(page: str, section: str) -> list[list[str]]:
    """The cells of the table in a section, without the table head."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    part = re.split(rf"^#+ {section}\n", text, flags=re.MULTILINE)[1].partition("\n## ")[0]
    return [row.split(" | ") for row in re.findall(r"^\| (.*) \|$", part, re.MULTILINE)[1:]]


@pytest.mark.parametrize("number", range(len(TOML)))
def test_every_profile_of_the_page_is_one(number: int, tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(TOML[number])
    assert read_profile(path).name


def test_the_example_for_production_is_a_good_one(tmp_path: Path) -> None:
    example = read_profile(ROOT / "deploy" / "critical.toml")

    assert {name for function in example.functions for name in function.flavours} == {
        flavour.name for flavour in example.flavours
    }


def test_each_range_triggers_where_the_page_says() -> None:
    table = rows("profiles-reference", "Thresholds")

    assert table
    for text, outside, inside in table:
        limits = read_range(code(text)[0])
        for number in code(outside):
            assert triggers(limits, Fraction(number)), (text, number)
        for number in code(inside):
            assert not triggers(limits, Fraction(number)), (text, number)


@pytest.mark.parametrize("row", rows("profiles", "Common mistakes"))
def test_each_mistake_gives_the_message_of_the_page(row: list[str], tmp_path: Path) -> None:
    [[mistake], [message]] = map(code, row)
    kept = [line for line in BASE.splitlines() if line.split(" = ")[0] != mistake.split(" = ")[0]]
    path = tmp_path / "profile.toml"
    path.write_text("\n".join([*kept, mistake]))

    with pytest.raises(ProfileError) as caught:
        read_profile(path)

    start = f"{path}:{len(kept) + 1}: {message}"
    assert any(problem.startswith(start) for problem in caught.value.problems), (
        caught.value.problems
    )
