"""VO feeds become rows of a VO."""

from __future__ import annotations

from pathlib import Path

import pytest

from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_rows import ALL_TYPES
from sam_pipeline.sql.imports.vofeed import read_vo_feed
from tests.support.database.gocdb_files import write
from tests.support.feed_server import vo_feed

SITE = '<atp_site name="SITE-A">{}</atp_site>'
CE = '<service hostname="ce01.example.org" flavour="CE"{}/>'


def feed(*contents: str, vo: str = "<vo>atlas</vo>") -> str:
    return f"<root>{vo}{''.join(contents)}</root>"


def test_services_and_groups_are_rows_of_the_vo(tmp_path: Path) -> None:
    services = (
        CE.format(' endpoint="ce01.example.org:9619" production_status="false"')
        + '<service hostname="SE01.example.org" flavour="SRM"><se_resource path="/x"/></service>'
    )
    groups = '<group name="T2" type="Tier"/><group name="SITE_A" type="atlas_Site"/>'
    path = write(tmp_path / "feed.xml", feed(SITE.format(services + groups), SITE.format(groups)))

    vo, rows = read_vo_feed(path)

    place = {"siteName": "SITE-A", "voName": "atlas"}
    ce = {"hostName": "ce01.example.org", "serviceFlavour": "CE", "production": "N"}
    assert vo == "atlas"
    assert rows.endpoints == [
        {**place, **ce, "serviceURI": "ce01.example.org:9619"},
        {**place, "hostName": "se01.example.org", "serviceFlavour": "SRM"},
    ]
    assert rows.groups == {
        ALL_TYPES: [
            {"siteName": "SITE-A", "groupName": "T2", "groupType": "Tier"},
            {"siteName": "SITE-A", "groupName": "SITE_A", "groupType": "atlas_Site"},
        ]
    }
    assert rows.downtimes is None


def test_of_a_service_that_appears_twice_the_one_in_production_counts(tmp_path: Path) -> None:
    twice = CE.format(' production_status="false"') + CE.format(' endpoint="ce01.example.org:2"')

    [row] = read_vo_feed(write(tmp_path / "feed.xml", feed(SITE.format(twice)))).rows.endpoints

    assert "production" not in row
    assert row["serviceURI"] == "ce01.example.org:2"


def test_the_feed_of_a_vo_owns_the_rows_of_this_vo_only(tmp_path: Path) -> None:
    atlas, cms = (
        read_vo_feed(write(tmp_path / f"{vo}.xml", vo_feed(vo, {"A": [("h", "CE")]})))
        for vo in ("atlas", "cms")
    )

    assert (atlas.source, cms.source) == ("vofeed:atlas", "vofeed:cms")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (feed(vo=""), "must name one VO"),
        (feed(vo="<vo>atlas</vo><vo>cms</vo>"), "must name one VO"),
        (feed(vo="<vo>a:b</vo>"), "must name one VO"),
        (feed(SITE.format(CE.format(' production_status="maybe"'))), "line 1: production_status"),
        (feed('<atp_site><service hostname="h" flavour="CE"/></atp_site>'), "line 1: .*siteName"),
        (feed(SITE.format('<service flavour="CE"/>')), "line 1: .*hostName"),
        (feed(SITE.format('<group name="T2"/>')), "line 1: .*groupType"),
        (feed(SITE.format(""))[:-9], "the file ends here"),
        ("<html><body>Maintenance</body></html>", "begins with <html>"),
    ],
)
def test_a_bad_feed_is_refused_as_a_whole(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        read_vo_feed(write(tmp_path / "feed.xml", text))
