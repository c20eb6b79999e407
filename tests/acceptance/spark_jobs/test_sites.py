"""Sites as a VO names them, from its feed to figures, explanations and pages; and chosen sites."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.spark_jobs.config import find_java
from tests.services import missing
from tests.services.postgres import fresh_database
from tests.support.commands import Workplace
from tests.support.reports.database import DAY, Grid

FEED = """\
<root><vo>cms</vo>
  <atp_site name="EXAMPLE-GRID">
    <service hostname="ce.north.example.org" flavour="HTCONDOR-CE"/>
    <group name="Tier-2" type="CMS_Tier"/>
    <group name="T2_XX_North" type="CMS_Site"/>
  </atp_site>
  <atp_site name="EXAMPLE-GRID">
    <service hostname="ce.south.example.org" flavour="HTCONDOR-CE"/>
    <group name="Tier-2" type="CMS_Tier"/>
    <group name="T2_XX_South" type="CMS_Site"/>
  </atp_site>
  <atp_site name="OTHER-GRID">
    <service hostname="ce.other.example.org" flavour="HTCONDOR-CE"/>
    <group name="Tier-2" type="CMS_Tier"/>
    <group name="T2_XX_South" type="CMS_Site"/>
  </atp_site>
  <atp_site name="EXAMPLE-T1">
    <service hostname="ce.t1.example.org" flavour="HTCONDOR-CE"/>
    <group name="Tier-1" type="CMS_Tier"/>
    <group name="T1_XX_One" type="CMS_Site"/>
  </atp_site>
</root>
"""
PROFILE = """\
name = "cms"
validity_s = "off"
vo = "cms"
{}
[flavours.HTCONDOR-CE]
metrics = ["submit"]
endpoints_operation = "AND"
"""
OF_DAY = ("--day", str(DAY))
RUN = ("sam-report", "run", *OF_DAY, "--profile", "cms.toml", "--source")
TIMES = {"startTime": "2099-01-01T00:00:00Z", "endTime": "2099-01-02T00:00:00Z"}


@pytest.fixture(params=["sqlite", "postgresql"])
def workplace(request: pytest.FixtureRequest, tmp_path: Path) -> Workplace:
    """The topology of the feed, a result of each endpoint, and downtimes by names of both kinds."""
    if find_java() is None:
        missing("Java", "apt-get install default-jre-headless")
    url = f"sqlite:///{tmp_path}/sam.db"
    if request.param == "postgresql":
        url = fresh_database(request.getfixturevalue("postgres"))
    workplace = Workplace(tmp_path, f"spool://{tmp_path}/queue", url).write_configuration()
    with (tmp_path / "sam.toml").open("a") as file:
        file.write(f'[archive]\nurl = "file://{tmp_path}/archive"\n')
    (tmp_path / "archive").mkdir()
    workplace.write("feed.xml", FEED)
    workplace.write("cms.toml", PROFILE.format(""))
    grid = Grid(url)
    since = ("--at", f"{DAY - timedelta(days=2)}T00:00:00Z")
    workplace.succeed("sam-db", "import", "vofeed", "feed.xml", "--site-group", "CMS_Site", *since)
    for name, status in (("north", "CRITICAL"), ("south", "OK"), ("other", "OK"), ("t1", "OK")):
        instance = f"HTCONDOR-CE ce.{name}.example.org submit"
        grid.result(instance, "00:00", status, vo="cms")
    grid.downtime("06:00", "08:00", downtimeId="G1", siteName="EXAMPLE-GRID")
    grid.downtime("10:00", "13:00", downtimeId="G2", siteName="T2_XX_South")
    of_host = {"hostName": "ce.other.example.org", "serviceFlavour": "HTCONDOR-CE"}
    grid.downtime("20:00", "21:00", downtimeId="G3", siteName="OTHER-GRID", **of_host)
    of_host["serviceFlavour"] = "org.opensciencegrid.htcondorce"
    grid.downtime("01:00", "02:00", downtimeId="G4", siteName="OTHER-GRID", **of_host)
    grid.downtime("", "", downtimeId="G5", siteName="ELSEWHERE", **TIMES)
    grid.dispose()
    return workplace


def test_sites_of_a_vo_are_apart_and_in_downtime_by_either_name(workplace: Workplace) -> None:
    computed = workplace.succeed(*RUN, "database")

    figures = show(workplace)
    assert figures == {
        "T1_XX_One": (100, 0),
        "T2_XX_North": (0, 2 * 3600),
        "T2_XX_South": (75, 6 * 3600),
    }
    # G4 has another flavour than the topology; G5 is not of the day.
    assert "1 downtime without an endpoint" in computed.err
    assert "downtime G4: " in computed.err
    checked = workplace.run("sam-db", "check")
    assert "downtime G5: site ELSEWHERE is not in the topology" in checked.err
    assert "G4" not in checked.err  # it is over
    for site, downtimes in (("T2_XX_North", ["G1"]), ("T2_XX_South", ["G1", "G2", "G3"])):
        about = ("sam-report", "explain", *OF_DAY, "--site", site, "--json")
        [explained] = workplace.succeed(*about).json
        assert [downtime["downtime_id"] for downtime in explained["downtimes"]] == downtimes
        covered = [
            downtime["downtime_id"]
            for thing in explained["things"]
            for reason in thing["reasons"]
            for downtime in reason["downtimes"]
        ]
        assert set(covered) == {*downtimes}
    workplace.succeed("sam-report", "pages", *OF_DAY, "--out", "pages")
    [page] = (workplace.directory / "pages").rglob("T2_XX_South*.html")
    assert "EXAMPLE-GRID" in page.read_text()

    workplace.succeed(
        "sam-db", "archive", "write", "--from", str(DAY - timedelta(days=1)), "--to", str(DAY)
    )
    workplace.succeed(*RUN, "archive")
    assert show(workplace) == figures


def test_a_report_expects_the_sites_of_its_patterns_only(workplace: Workplace) -> None:
    patterns = 'sites = ["*_South"]\ngroups = ["CMS_Tier/*-1"]'
    workplace.write("cms.toml", PROFILE.format(patterns))

    workplace.succeed(*RUN, "database")

    assert set(show(workplace)) == {"T1_XX_One", "T2_XX_South"}
    groups = workplace.succeed("sam-report", "show", *OF_DAY, "--level", "group", "--json").json
    assert {row["group_name"]: row["sites_expected"] for row in groups} == {
        "Tier-1": 1,
        "Tier-2": 1,
    }
    refused = workplace.run("sam-report", "explain", *OF_DAY, "--site", "T2_XX_North")
    assert refused.code == 64
    assert "cms expects only those named *_South and members of CMS_Tier/*-1" in refused.err


def show(workplace: Workplace) -> dict[str, tuple[Any, int]]:
    """The availability of each site, and its seconds in downtime."""
    rows = workplace.succeed("sam-report", "show", *OF_DAY, "--json").json
    return {row["site"]: (row["availability"], row["downtime_s"]) for row in rows}
