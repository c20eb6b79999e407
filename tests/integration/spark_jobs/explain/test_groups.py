"""The explanation of a group's figure can be checked by hand, from what it prints."""

from __future__ import annotations

import re
from datetime import date
from fractions import Fraction
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.program.command import USAGE
from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.figures import Member
from sam_pipeline.spark_jobs.rules.seconds import rounded, short
from tests.integration.spark_jobs.conftest import SamReport
from tests.support.reports.database import PROFILE as OTHER_FUNCTIONS
from tests.support.reports.published_days import Timeline, publish

PROFILE = OTHER_FUNCTIONS.replace(
    "[functions.compute]", "[functions.ce]"
)  # as `publish` names them
GOOD: Timeline = {"00:00": "OK"}
HALF: Timeline = {"00:00": "OK", "12:00": "CRITICAL"}
DOWN: Timeline = {"00:00": "DOWNTIME"}
SILENT: Timeline = {"00:00": "MISSING"}
DAYS = [date(2026, 10, number) for number in range(1, 5)]
MONTH = ("explain", "--group", "federation/DE", "--month", "2026-10")


def members(**weights: int) -> list[Member]:
    return [Member("federation", "DE", site, weight) for site, weight in weights.items()]


@pytest.fixture
def october(engine: Engine, tmp_path: Path) -> Profile:
    """Four days: OLD is renamed to NEW on the third, the weight of A changes on the last."""
    report = read_profile(write(tmp_path, PROFILE))
    for day, of_day, timelines in (
        (DAYS[0], members(A=1, OLD=2), {"A": GOOD, "OLD": HALF}),
        (DAYS[1], members(A=1, OLD=2), {"A": HALF, "OLD": SILENT}),
        (DAYS[2], members(A=1, NEW=2), {"A": DOWN, "NEW": GOOD}),
        (DAYS[3], members(A=5, NEW=2), {"A": HALF, "NEW": GOOD}),
    ):
        named = {f"{site} CE {site.lower()}": timeline for site, timeline in timelines.items()}
        publish(engine, report, day, {**named, "OTHER CE other": DOWN}, of_day)
    return report


def write(directory: Path, profile: str) -> Path:
    (directory / "profile.toml").write_text(profile)
    return directory / "profile.toml"


def test_the_figure_of_a_month_follows_from_the_printed_numbers(
    october: Profile, sam_report: SamReport
) -> None:
    lines = sam_report(*MONTH).out.splitlines()
    [shown] = sam_report("show", "--level", "group", "--month", "2026-10", "--json").json

    rows = [line.split() for line in lines if re.match("(A|NEW|OLD) ", line)]
    # Site, days, weights, their sum, and the seconds that were up and known.
    assert [row[:2] for row in rows[:3]] == [["A", "4"], ["NEW", "2"], ["OLD", "2"]]
    assert rows[0][2:6] == ["1,", "5", "8", "172800"]
    assert [row[3:5] for row in rows[1:3]] == [["4", "172800"], ["2", "43200"]]
    unwrapped = "\n".join(lines).replace("\n    ", " ").splitlines()
    formulas = dict(line.split(" = ", 1) for line in unwrapped if " = " in line)
    for name, formula in formulas.items():
        terms, result = formula.rsplit(" = ", 1)
        assert (
            rounded(by_hand(terms))
            == rounded(Fraction(result))
            == rounded(Fraction(str(shown[name])))
        )
    assert set(formulas) == {"availability", "reliability"}
    of_members = lines[lines.index("members and weights") + 1 :]
    assert [line.strip() for line in of_members[:5]] == [
        "A: weight 1 on 2026-10-01 to 2026-10-03, 5 on 2026-10-04",
        "A: no reliability on 2026-10-03, so no weight in it",
        "NEW: a member on 2026-10-03 to 2026-10-04",
        "OLD: a member on 2026-10-01 to 2026-10-02",
        "OLD: no figure on 2026-10-02, so no weight",
    ]
    [(first, last)] = re.findall(r"2026-10-01 to 2026-10-04: runs (\d+) to (\d+)", "\n".join(lines))
    assert int(last) - int(first) == 3


def by_hand(terms: str) -> Fraction:
    """The value of a formula such as 100 x (2 x 3 / 4 + 1 x 5 / 6) / (2 + 1)."""
    assert re.fullmatch(r"[0-9 x/+()]+", terms)
    exact = re.sub(r"\d+", r"Fraction(\g<0>)", terms.replace("x", "*"))
    return Fraction(eval(exact, {"Fraction": Fraction}))


def test_json_has_every_day_and_a_day_alone_is_explained_by_the_same_numbers(
    october: Profile, sam_report: SamReport
) -> None:
    [month] = sam_report(*MONTH, "--json").json
    [day] = sam_report(*MONTH[:3], "--day", DAYS[3], "--json").json
    lines = sam_report(*MONTH[:3], "--day", DAYS[3]).out.splitlines()

    assert [each["day"] for each in month["by_day"]] == [str(day) for day in DAYS]
    assert [len(each["members"]) for each in month["by_day"]] == [2, 2, 2, 2]
    assert day["by_day"] == month["by_day"][3:]
    [of_day] = day["by_day"]
    figures = ("availability", "reliability", "sites_expected", "sites_known")
    assert [day[name] for name in figures] == [of_day[name] for name in figures]
    assert day["availability"] == 64.28571  # (5 x 50 + 2 x 100) / 7
    [a, new] = day["members"]
    assert (a["share"], new["share"], new["weight"]) == (71.42857, 28.57143, 2)
    assert "reliability: the same, as no member was in downtime" in lines


def test_weights_of_argo_and_of_0_are_pointed_out(
    engine: Engine, october: Profile, sam_report: SamReport, tmp_path: Path
) -> None:
    """The stored weights are those that count."""
    argo = read_profile(write(tmp_path, f'weights = "argo"\n{PROFILE}'))
    publish(engine, argo, DAYS[0], {"A CE a": GOOD}, members(A=1))
    without = [Member("federation", "ZERO", "A", 0)]
    publish(engine, october, DAYS[1], {"A CE a": GOOD}, members(A=0) + without)

    out = tmp_path / "out"
    sam_report("pages", "--month", "2026-10", "--out", out)
    page = (out / "test/2026-10/groups/federation.html").read_text()
    sam_report("export", "--format", "parquet", "--month", "2026-10", "--out", out)
    with_argo = sam_report(*MONTH).out
    [of_day] = sam_report(*MONTH[:3], "--day", DAYS[1], "--json").json
    weightless = sam_report(*MONTH[:3], "--day", DAYS[1]).out
    table = sam_report("show", "--level", "group", "--day", DAYS[1]).out
    shown_argo = sam_report("show", "--level", "group", "--day", DAYS[0]).out

    assert "weight + 1, as in ARGO (on 2026-10-01)" in with_argo
    assert of_day["availability"] is None and of_day["sites_known"] == 1
    assert "weight 0" in weightless and "weight 0" in table
    assert "weight + 1, as in ARGO" in shown_argo and "ARGO" not in table
    assert "ZERO: no figure, as all weights are 0" in page
    assert "no figure: all weights are 0</li>" in page
    assert "<b>weight + 1</b>, as in ARGO" in page
    exported = out / "report_group_site/report=test"
    of_days = [pq.read_schema(exported / f"day={day}/part-0.parquet") for day in DAYS[:2]]
    assert [(of_day.metadata or {}).get(b"weights") for of_day in of_days] == [b"argo", None]
    assert {"weight", "availability", "ok_s"} < set(of_days[0].names)


def test_the_page_of_groups_has_the_days_weights_and_share_of_each_member(
    october: Profile, sam_report: SamReport, tmp_path: Path
) -> None:
    [month] = sam_report(*MONTH, "--json").json
    sam_report("pages", "--month", "2026-10", "--out", tmp_path / "out")
    page = (tmp_path / "out/test/2026-10/groups/federation.html").read_text()

    of_a = next(
        line for line in page.splitlines() if line.startswith("<tr><th") and ">A</a>" in line
    )
    cells = page[page.index(of_a) + len(of_a) :].partition("</tr>")[0].split("<td>")[-3:]
    assert cells == ["4", "1, 5", short(Fraction(str(month["members"][0]["share"])), 1)]
    assert f"DE: {short(Fraction(str(month['availability'])))} % (3 of 3 sites)" in page


def test_an_unknown_group_and_options_of_sites_are_refused(
    october: Profile, sam_report: SamReport
) -> None:
    of_day = ("--day", DAYS[0])
    for arguments, message in (
        (("--group", "federation/DK"), "did you mean federation/DE?"),
        (("--group", "DE"), "TYPE/NAME"),
        (("--group", "federation/DE", "--by", "cause"), "--group does not go with"),
        (("--group", "federation/DE", "--site", "A"), "not allowed with"),
        ((), "--site"),
    ):
        assert message in sam_report("explain", *arguments, *of_day, code=USAGE).err
