"""A month of one grid site from CRIC, GOCDB and the feed of a VO, against its files read anew."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

from sam_pipeline.spark_jobs.config import find_java
from tests.oracle.oracle import STATUSES, day_report, period
from tests.services import missing
from tests.services.postgres import fresh_database
from tests.support.commands import Workplace
from tests.worlds.model import Downtime, Endpoint, Flavour, Profile, Result, World, midnight
from tests.worlds.profile_file import to_toml
from tests.worlds.records import result_batches

FIRST, DAYS = date(2026, 10, 1), 31
SINCE = "2026-10-01T00:00:00Z"
SITE = "EXAMPLE-LCG2"
CE, WEBDAV, XROOTD = "HTCONDOR-CE", "WEBDAV", "XROOTD"
OURS = {
    "org.opensciencegrid.htcondorce": CE,
    "htcondor-ce": CE,
    "webdav": WEBDAV,
    "xrootd": XROOTD,
    "xrootd component": XROOTD,
}
"""The names of our flavours in the files, in lower case."""

VO_FEED = f"""\
<root><vo>cms</vo>
  <atp_site name="{SITE}">
    <service hostname="ce01.example.org" flavour="HTCONDOR-CE" endpoint="ce01.example.org:9619"/>
    <service hostname="se01.example.org" flavour="XROOTD"/>
    <service hostname="se02.example.org" flavour="WEBDAV" production_status="false"/>
    <group name="T2_XX_Example" type="CMS_Site"/>
  </atp_site>
  <atp_site name="{SITE}">
    <service hostname="ce02.example.org" flavour="HTCONDOR-CE"/>
    <group name="T2_XX_Other" type="CMS_Site"/>
  </atp_site>
</root>
"""
GOCDB_ENDPOINTS = "".join(
    f"""  <SERVICE_ENDPOINT PRIMARY_KEY="{number}G0"><HOSTNAME>{host}</HOSTNAME>
    <SERVICE_TYPE>{service}</SERVICE_TYPE><IN_PRODUCTION>{production}</IN_PRODUCTION>
    <NODE_MONITORED>Y</NODE_MONITORED><SITENAME>{SITE}</SITENAME></SERVICE_ENDPOINT>
"""
    for number, (host, service, production) in enumerate(
        [
            ("ce01.example.org", "org.opensciencegrid.htcondorce", "Y"),
            ("ce02.example.org", "org.opensciencegrid.htcondorce", "Y"),
            ("se01.example.org", "webdav", "Y"),
            ("old.example.org", "webdav", "N"),
        ]
    )
)
CRIC = {
    "EXAMPLE_SE": {
        "type": "SE",
        "rcsite": SITE,
        "state": "ACTIVE",
        "protocols": {
            "a": {"endpoint": "root://se01.example.org:1094", "flavour": "XROOTD"},
            "b": {
                "endpoint": "root://off.example.org:1094",
                "flavour": "XROOTD",
                "state": "DISABLED",
            },
            "c": {
                "endpoint": "root://test.example.org:1094",
                "flavour": "XROOTD",
                "is_monitored": False,
            },
        },
    }
}
GOCDB_DOWNTIMES = "".join(
    f"""  <DOWNTIME ID="{number}" PRIMARY_KEY="{number}G0" CLASSIFICATION="{kind[0]}">
    <SEVERITY>{kind[1]}</SEVERITY><DESCRIPTION>work</DESCRIPTION>
    <START_DATE>{int((midnight(FIRST) + timedelta(hours=start)).timestamp())}</START_DATE>
    <END_DATE>{int((midnight(FIRST) + timedelta(hours=end)).timestamp())}</END_DATE>
    <SERVICES>{
        "".join(
            f"<SERVICE><HOSTNAME>{host}</HOSTNAME><SERVICE_TYPE>{service}</SERVICE_TYPE>"
            f"<HOSTED_BY>{SITE}</HOSTED_BY></SERVICE>"
            for host, service in services
        )
    }</SERVICES></DOWNTIME>
"""
    for number, (kind, start, end, services) in enumerate(
        [
            (
                ("SCHEDULED", "OUTAGE"),
                100,
                131,
                [
                    ("ce01.example.org", "org.opensciencegrid.htcondorce"),
                    ("se01.example.org", "XRootD component"),
                ],
            ),
            (("SCHEDULED", "OUTAGE"), 300, 320, [("se01.example.org", "webdav")]),
            (("SCHEDULED", "WARNING"), 400, 420, [("ce01.example.org", "XRootD component")]),
            (
                ("UNSCHEDULED", "OUTAGE"),
                500,
                530,
                [("ce02.example.org", "org.opensciencegrid.htcondorce")],
            ),
            (
                ("SCHEDULED", "OUTAGE"),
                640,
                700,
                [
                    ("ce02.example.org", "org.opensciencegrid.htcondorce"),
                    ("elsewhere.example.org", "webdav"),
                ],
            ),
        ]
    )
)
PROFILE = Profile(
    "month",
    {CE: Flavour(("submit",)), WEBDAV: Flavour(("put",)), XROOTD: Flavour(("read",), "AND")},
    validity_s=10_000,
    vo="cms",
)


def read_again() -> tuple[tuple[Endpoint, ...], tuple[Downtime, ...]]:
    """The endpoints and downtimes of the files above, without code of ours."""
    from_start = midnight(FIRST)
    endpoints = []
    for vo_site in ElementTree.fromstring(VO_FEED).iter("atp_site"):
        [own] = [g.attrib["name"] for g in vo_site.iter("group") if g.attrib["type"] == "CMS_Site"]
        for service in vo_site.iter("service"):
            host, flavour = service.attrib["hostname"], OURS[service.attrib["flavour"].lower()]
            status = {"false": "N"}.get(service.get("production_status", ""), "")
            names = (own, host, flavour, from_start, None, "cms", status)
            endpoints.append(Endpoint(*names, grid_site=vo_site.attrib["name"]))
    for element in ElementTree.fromstring(f"<r>{GOCDB_ENDPOINTS}</r>"):
        said = {child.tag: child.text or "" for child in element}
        flavour, production = OURS[said["SERVICE_TYPE"].lower()], said["IN_PRODUCTION"]
        names = (said["SITENAME"], said["HOSTNAME"], flavour, from_start, None, "", production)
        endpoints.append(Endpoint(*names))
    for storage in CRIC.values():
        for door in storage["protocols"].values():  # type: ignore[attr-defined]
            if door.get("state") != "DISABLED":
                host = door["endpoint"].split("/")[2].split(":")[0]
                monitored = "N" if door.get("is_monitored") is False else ""
                names = (SITE, host, OURS[door["flavour"].lower()], from_start)
                endpoints.append(Endpoint(*names, monitored=monitored))
    downtimes = [
        Downtime(
            element.attrib["PRIMARY_KEY"],
            datetime.fromtimestamp(int(element.findtext("START_DATE", "")), UTC),
            datetime.fromtimestamp(int(element.findtext("END_DATE", "")), UTC),
            from_start,
            service.findtext("HOSTED_BY", ""),
            service.findtext("HOSTNAME", ""),
            OURS[service.findtext("SERVICE_TYPE", "").lower()],
            element.attrib["CLASSIFICATION"],
            element.findtext("SEVERITY", ""),
        )
        for element in ElementTree.fromstring(f"<r>{GOCDB_DOWNTIMES}</r>")
        for service in element.iter("SERVICE")
    ]
    return tuple(endpoints), tuple(downtimes)


def drawn_results() -> Iterator[Result]:
    """Every two hours or so, of each endpoint that any file names."""
    chance = random.Random(31)
    endpoints, _ = read_again()
    for host, flavour in sorted({(row.host, row.flavour) for row in endpoints}):
        [metric] = PROFILE.flavours[flavour].metrics
        at = midnight(FIRST)
        while at < midnight(FIRST) + timedelta(days=DAYS):
            status = chance.choice(("OK", "OK", "OK", "WARNING", "CRITICAL"))
            yield Result(host, flavour, metric, status, at, "cms")
            at += timedelta(seconds=chance.randrange(3_000, 14_000))


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_a_month_of_a_site_equals_what_its_files_say(
    dialect: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if find_java() is None:
        missing("Java", "apt-get install default-jre-headless")
    url = f"sqlite:///{tmp_path}/sam.db"
    if dialect == "postgresql":
        url = fresh_database(request.getfixturevalue("postgres"))
    workplace = Workplace(tmp_path, f"spool://{tmp_path}/queue", url).write_configuration()
    workplace.write("month.toml", to_toml(PROFILE))
    workplace.write("cms.xml", VO_FEED)
    workplace.write("endpoints.xml", f"<results>{GOCDB_ENDPOINTS}</results>")
    workplace.write("downtimes.xml", f"<results>{GOCDB_DOWNTIMES}</results>")
    workplace.write("cric.json", json.dumps(CRIC))
    results = tuple(drawn_results())
    batches = result_batches(results, "results")
    workplace.write("results.txt", "".join(batch.text() for batch in batches))
    window = f"{FIRST}..{FIRST + timedelta(days=DAYS - 1)}"
    workplace.succeed("sam-db", "upgrade")
    for command in (
        ("vofeed", "cms.xml", "--site-group", "CMS_Site"),
        ("cric", "--endpoints", "cric.json"),
        ("gocdb", "--endpoints", "endpoints.xml", "--downtimes", "downtimes.xml"),
    ):
        more = ("--window", window) if command[0] == "gocdb" else ()
        workplace.succeed("sam-db", "import", *command, *more, "--since", SINCE)
    workplace.succeed("sam-db", "import", "records", "--class", "metricOutput", "results.txt")

    workplace.succeed("sam-report", "run", "--profile", "month.toml", "--month", "2026-10")

    endpoints, downtimes = read_again()
    world = World(FIRST, DAYS, endpoints, (), downtimes, results)
    of_days = [day_report(world, PROFILE, day).figures("sites") for day in world.all_days]
    expected = {}
    for site in ("T2_XX_Example", "T2_XX_Other", SITE):
        month = period(of_day[site,] for of_day in of_days)
        seconds = [month.seconds[status] for status in STATUSES]
        expected[site] = (*map(float, (month.availability, month.reliability)), *seconds)  # type: ignore[arg-type]
    shown = workplace.succeed("sam-report", "show", "--month", "2026-10", "--json").json
    columns = ("availability", "reliability", *(f"{status.lower()}_s" for status in STATUSES))
    assert {row["site"]: tuple(row[name] for name in columns) for row in shown} == expected
    assert all(0 < values[0] < 100 for values in expected.values())
    assert len(set(expected.values())) == 3
