"""The page of a site that failed on 18 days: what, when exactly, and why, at a glance."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sam_pipeline.spark_jobs.cli import main
from sam_pipeline.spark_jobs.explain.results import NOT_READ, NOT_STORED
from sam_pipeline.spark_jobs.pages import site_tree
from tests.services.postgres import fresh_database
from tests.support.reports import bad_month
from tests.support.reports.bad_month import BAD, FIRST_BAD, GOOD, LAST_BAD, OCTOBER, RESULTS_A_DAY
from tests.support.reports.pages import section_of

CAUSE = "checksum mismatch (* tries)"
TIMES = "06:00:00-18:00:00 CRITICAL: "
BECAUSE = "function srm: service SRM: endpoint se1.pine.example.org: metric ping"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The configuration, and the pages in `out`."""
    directory = tmp_path_factory.mktemp("bad_month")
    grid = bad_month.fill(f"sqlite:///{directory}/sam.db", directory)
    command = ["--config", str(directory / "sam.toml"), "site", "--month", "2026-10"]
    assert main([*command, "--out", str(directory / "out")]) == 0
    yield directory
    grid.dispose()


@pytest.fixture(scope="module")
def page(directory: Path) -> str:
    return (directory / "out/test/2026-10" / f"{BAD}.html").read_text(encoding="utf-8")


def summaries(page: str) -> list[str]:
    """The visible text of the lines that unfold something."""
    return [
        " ".join(html.unescape(re.sub("<[^>]+>", "", summary)).split())
        for summary in re.findall("<summary>(.*?)</summary>", page, re.DOTALL)
    ]


def explained(
    directory: Path, capsys: pytest.CaptureFixture[str], *options: str
) -> dict[str, object]:
    command = ["--config", str(directory / "sam.toml"), "explain", "--site", BAD]
    assert main([*command, "--day", str(LAST_BAD), "--json", *options]) == 0
    [document] = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def test_a_run_of_days_with_one_cause_is_one_line(page: str) -> None:
    [folded] = [line for line in summaries(page) if "18 days" in line]

    assert f"2 to 19 October, 18 days: {CAUSE}, ping" in folded
    assert page.count('<details class="spell"') == 1


def test_texts_that_differ_only_in_numbers_are_one_cause_with_its_count(page: str) -> None:
    causes = page.partition('id="why"')[2].partition('id="days"')[0]

    [row] = re.findall("<tr><td class=.*?</tr>", causes)
    assert CAUSE in row
    assert f'<td class="number">{18 * RESULTS_A_DAY}</td>' in row
    assert f'<a href="#{FIRST_BAD}">2 to 19 October</a>' in row


def test_page_and_explanation_show_the_same_causes_with_the_same_counts(
    directory: Path, page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    [cause] = explained(directory, capsys, "--group")["causes"]  # type: ignore[misc]

    day = section_of(page, LAST_BAD)
    assert html.escape(cause["text"]) in day
    assert f'<td class="number">{cause["count"]}</td>' in day


def test_a_month_with_too_many_failing_results_says_so_and_where_to_see_them(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_tree, "MAX_RESULTS_OF_SITE", 2 * RESULTS_A_DAY)
    command = ["--config", str(directory / "sam.toml"), "site", "--month", "2026-10"]
    assert main([*command, "--out", str(tmp_path)]) == 0

    page = (tmp_path / "test/2026-10" / f"{BAD}.html").read_text(encoding="utf-8")
    assert "until 18 October, 06:00" in page
    assert NOT_STORED not in page
    assert NOT_READ in section_of(page, FIRST_BAD)
    assert "checksum mismatch" in section_of(page, LAST_BAD)


def test_a_month_with_all_its_failing_results_has_no_such_note(page: str) -> None:
    assert NOT_READ not in page
    assert "until 18 October" not in page


def test_the_month_comes_first_then_the_causes_then_the_days(page: str) -> None:
    assert page.index('id="glance"') < page.index('id="why"') < page.index('id="days"')


def test_message_ids_are_on_the_days_only(page: str) -> None:
    month, _, days = page.partition('id="days"')

    assert "m-2026-10" not in month
    assert "m-2026-10" in days


def test_only_the_newest_bad_day_is_open(page: str) -> None:
    [opened] = re.findall(r'<details class="day" open>.*?<time datetime="(.*?)"', page, re.DOTALL)

    assert opened == str(LAST_BAD)


def test_each_day_of_the_month_has_its_anchor(page: str) -> None:
    for day in OCTOBER.days():
        assert page.count(f'id="{day}"') == 1


def test_each_stretch_of_a_bar_has_its_times_and_its_cause_as_title(
    directory: Path, page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    day = section_of(page, LAST_BAD)

    assert f"<title>{TIMES}{BECAUSE}</title>" in day
    assert "<title>00:00:00-06:00:00 OK</title>" in day
    assert f"<title>{TIMES}{BECAUSE}</title>" in page.partition('id="why"')[0]
    lines = explained(directory, capsys, "--ticket")["lines"]
    assert TIMES + BECAUSE in " ".join(" ".join(lines).split())  # type: ignore[arg-type]


def test_the_stretches_are_listed_with_their_causes_below_the_lanes(page: str) -> None:
    rows = [
        html.unescape(re.sub("<[^>]+>", "|", row))
        for table in re.findall(
            r'<table class="plain stretches">.*?</table>', section_of(page, LAST_BAD), re.DOTALL
        )
        for row in re.findall("<tr><td.*?</tr>", table)
    ]

    assert f"06:00:00 to 18:00:00||12 h||CRITICAL||{BECAUSE}|" in rows[0]
    assert [row for row in rows if "endpoint SRM se1" in row and row.endswith("|metric ping||")]
    assert [row for row in rows if "metric SRM se1" in row and "checksum mismatch" in row]


def test_the_lanes_of_metrics_are_folded_below_their_endpoint(page: str) -> None:
    day = section_of(page, LAST_BAD)

    metrics = day.partition('<tr class="endpoint">')[2].partition('<tr class="metrics">')[2]
    assert re.match(r'<td colspan="3"><details><summary>1 metric', metrics)
    assert '<tr class="metric"><th scope="row"><small>metric</small> ping' in metrics
    assert re.search(r"<title>06:00:00-18:00:00 CRITICAL: CRITICAL: checksum mismatch", metrics)


def test_a_site_that_was_always_ok_has_no_sections(directory: Path) -> None:
    page = (directory / "out/test/2026-10" / f"{GOOD}.html").read_text(encoding="utf-8")

    assert "<details" not in page.partition("<main>")[2]
    for day in OCTOBER.days():
        assert f'<tr id="{day}">' in page


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_a_site_before_its_first_day_shows_since_when_it_is_in_the_topology(
    dialect: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = f"sqlite:///{tmp_path}/sam.db"
    if dialect == "postgresql":
        url = fresh_database(request.getfixturevalue("postgres"))
    grid = bad_month.fill(url, tmp_path)
    grid.endpoint("LATER-T2", "CE", "ce1.later", validFrom="2026-10-25T06:00:00Z")
    grid.endpoint("FORMER-T2", "CE", "ce1.former", validTo="2026-09-30T12:00:00Z")
    grid.endpoint("OTHER-T2", "CE", "ce1.other")
    grid.dispose()
    command = ["--config", str(tmp_path / "sam.toml"), "explain", "--day", str(LAST_BAD)]

    for site, fact in (
        ("LATER-T2", "from 2026-10-25T06:00:00Z on"),
        ("FORMER-T2", "until 2026-09-30T12:00:00Z"),
        ("OTHER-T2", "expected that day by test"),
        ("ASTER-T2", f"did you mean {GOOD}"),
    ):
        assert main([*command, "--site", site]) == 64
        error = capsys.readouterr().err
        assert f"no site {site} on {LAST_BAD}: " in error
        assert fact in error
