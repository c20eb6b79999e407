"""The pictures and the results of the scenarios belong to measured.json, and fit onto a page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.simulation.costs import read_measured
from tests.simulation.results import RESULTS
from tests.simulation.scenarios import SCENARIOS

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "scale.md").read_text(encoding="utf-8")
PICTURES = re.findall(r"^!\[[^\]]+\]\((pictures/scale-[^)]+)\)$", PAGE, re.MULTILINE)


def test_the_results_are_those_of_the_measurement() -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))

    rerun = "run `python -m tests.simulation plots` and `make docs`"
    assert results["measured_at"] == read_measured().document["measured_at"], rerun
    assert set(results["scenarios"]) == set(SCENARIOS), rerun


def test_the_page_shows_each_picture_of_the_model_once() -> None:
    drawn = sorted(f"pictures/{path.name}" for path in (DOCS / "pictures").glob("scale-*.svg"))

    assert sorted(PICTURES) == drawn


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_small_and_its_axes_have_labels(name: str) -> None:
    picture = (DOCS / name).read_text(encoding="utf-8")

    assert len(picture) <= 150_000
    words = re.findall(r"<text[^>]*>([^<]+)</text>", picture)
    assert any(re.search(r"messages|rows|cores", word) for word in words)
    assert any(re.search(r"minutes|hours|results/s|cores|processes", word) for word in words)
