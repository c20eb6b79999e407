"""`sam-db import` of files of CRIC, OSG, VOs and argo-connectors, in either database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sam_pipeline.schema.program.command import BAD_DATA
from tests.support.commands import Workplace
from tests.support.feed_samples import (
    ARGO_DOWNTIMES,
    ARGO_TOPOLOGY,
    CE,
    CRIC_DOWNTIME,
    OSG_DOWNTIME_YAML,
    OSG_GROUP_YAML,
    STORAGE,
    VO_FEED,
    osg_contacts,
    osg_downtime,
    osg_downtimes,
    osg_group,
    osg_resource,
    osg_service,
    osg_summary,
)
from tests.support.feed_server import as_json
from tests.support.reports.stored import query

WINDOW = ("--window", "2026-01-01..2026-12-31")
CRIC = ("cric", "--endpoints", "services.json", "--downtimes", "downtimes.json", *WINDOW)
OSG = ("osg", "--endpoints", "rgsummary.xml", "--downtimes", "rgdowntime.xml")
ARGO = ("argo", "--endpoints", "topology.csv", "--downtimes", "downtimes.csv")
ARGO_TIMES = ("--time-format", "%m/%d/%Y %H:%M")


@pytest.fixture
def samples(workplace: Workplace) -> Workplace:
    """Its directory has a file of each format."""
    services = {"EXAMPLE_SE": STORAGE, "ce": CE, "ORPHAN": {**CE, "rcsite": ""}}
    workplace.write("services.json", as_json(services)[1])
    workplace.write("downtimes.json", as_json({"4711": CRIC_DOWNTIME})[1])
    more = osg_contacts("Administrative Contact", "Ann A")
    resource = osg_resource("ce.example.edu", osg_service("CE"), osg_service("Squid"), more=more)
    workplace.write("rgsummary.xml", osg_summary(osg_group("EXAMPLE_T2", resource)))
    workplace.write("rgdowntime.xml", osg_downtimes(osg_downtime()))
    workplace.write("EXAMPLE_T2.yaml", OSG_GROUP_YAML)
    workplace.write("EXAMPLE_T2_downtime.yaml", OSG_DOWNTIME_YAML)
    workplace.write("topology.csv", ARGO_TOPOLOGY)
    workplace.write("downtimes.csv", ARGO_DOWNTIMES)
    (workplace.directory / "vofeed.xml").write_bytes(VO_FEED.encode("iso-8859-1"))
    return workplace


def endpoints(workplace: Workplace) -> set[tuple[Any, ...]]:
    """Site, host, flavour, production and monitored of those that are valid."""
    statement = """
        SELECT siteName AS site, hostName AS host, serviceFlavour AS flavour,
            coalesce(production, '') AS production, coalesce(monitored, '') AS monitored
        FROM serviceEndpoint WHERE validTo IS NULL
    """
    return {tuple(row.values()) for row in query(workplace.database, statement)}


def downtimes(workplace: Workplace) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Site, start, end and severity by id and flavour."""
    listed = workplace.succeed("sam-db", "downtime", "list", "--all", "--json").json
    names = ("site", "start_time", "end_time", "severity")
    return {
        (row["downtime_id"], row["service_flavour"]): tuple(row[name] for name in names)
        for row in listed
    }


def repeated(workplace: Workplace, *command: str) -> set[tuple[int, int, int]]:
    """The numbers of new, changed and ended rows of all kinds if the import is repeated."""
    done = workplace.succeed("sam-db", "import", *command, "--json").json
    return {(kind["new"], kind["changed"], kind["ended"]) for kind in done["kinds"]}


def test_storage_of_cric_is_expected_by_its_doors_and_down_by_its_downtimes(
    samples: Workplace,
) -> None:
    done = samples.succeed("sam-db", "import", *CRIC)

    assert "ignoring 1 service without a site, such as ORPHAN" in done.err
    site = "EXAMPLE-LCG2"
    assert endpoints(samples) == {
        (site, "se01.example.org", "SRM", "Y", "Y"),
        (site, "se01.example.org", "WEBDAV", "Y", "Y"),
        (site, "xrootd.example.org", "XROOTD", "Y", "N"),
        (site, "ce01.example.org", "HTCONDOR-CE", "Y", "Y"),
    }
    period = (site, "2026-11-05T08:00:00Z", "2026-11-05T12:00:00Z", "OUTAGE")
    assert downtimes(samples) == {("4711", "XROOTD"): period, ("4711", "SRM"): period}
    assert repeated(samples, *CRIC) == {(0, 0, 0)}


def test_osg_is_imported_from_its_server_and_from_its_repository(samples: Workplace) -> None:
    samples.succeed("sam-db", "import", *OSG, "--at", "2026-11-01T00:00:00Z")

    site, host = "EXAMPLE_T2", "ce.example.edu"
    assert endpoints(samples) == {
        (site, host, "HTCONDOR-CE", "Y", "Y"),
        (site, host, "Squid", "Y", "Y"),
    }
    groups = "SELECT siteName AS site, groupType AS kind, groupName AS name FROM siteGroup"
    assert {tuple(row.values()) for row in query(samples.database, groups)} == {
        (site, "OSG_Facility", "University of Example"),
        (site, "OSG_Site", "Example Campus"),
    }
    contacts = "SELECT siteName AS site, contact FROM siteContact"
    assert [tuple(row.values()) for row in query(samples.database, contacts)] == [(site, "Ann A")]
    period = (site, "2026-11-05T13:00:00Z", "2026-11-06T00:30:00Z", "OUTAGE")
    both = {("1005710", "HTCONDOR-CE"): period, ("1005710", "WEBDAV"): period}
    assert downtimes(samples) == both
    assert repeated(samples, *OSG) == {(0, 0, 0)}
    samples.succeed("sam-db", "import", "osg", "--downtimes", "EXAMPLE_T2_downtime.yaml")
    period = (site, "2026-03-29T03:00:00Z", "2026-03-30T09:00:00Z", "OUTAGE")
    assert downtimes(samples) == {**both, ("017", "HTCONDOR-CE"): period}


def test_tables_of_argo_connectors_need_the_format_of_their_times(samples: Workplace) -> None:
    refused = samples.run("sam-db", "import", *ARGO)
    assert (refused.code, endpoints(samples)) == (BAD_DATA, set())
    assert "--time-format" in refused.err

    samples.succeed("sam-db", "import", *ARGO, *ARGO_TIMES)

    assert {row[1:4] for row in endpoints(samples)} == {
        ("files.example.eu", "nextcloud", "Y"),
        ("dev.example.eu", "nextcloud", "N"),
    }
    assert {(row[1], row[2]) for row in downtimes(samples).values()} == {
        ("2026-02-03T08:00:00Z", "2026-02-04T19:00:00Z"),
        ("2026-03-01T08:00:00Z", "2026-03-01T09:30:00Z"),
    }
    assert repeated(samples, *ARGO, *ARGO_TIMES) == {(0, 0, 0)}


def test_times_of_any_table_may_have_a_format(samples: Workplace) -> None:
    samples.write(
        "table.csv",
        "siteName,startTime,endTime,classification,severity\n"
        'A,"Mar 28, 2026 22:00 -0500","Mar 29, 2026 02:00 -0500",SCHEDULED,OUTAGE\n',
    )
    command = ("sam-db", "import", "csv", "--class", "downtime", "table.csv")
    assert samples.run(*command).code == BAD_DATA

    samples.succeed(*command, "--time-format", "%b %d, %Y %H:%M %z")

    [(_, start, end, _)] = downtimes(samples).values()
    assert (start, end) == ("2026-03-29T03:00:00Z", "2026-03-29T07:00:00Z")


def test_a_vo_feed_with_an_unnamed_site_is_imported_without_it(samples: Workplace) -> None:
    done = samples.succeed("sam-db", "import", "vofeed", "vofeed.xml")

    assert "ignoring 1 site without a name" in done.err
    assert {row[:4] for row in endpoints(samples)} == {
        ("EXAMPLE-LCG2", "ce01.example.org", "HTCONDOR-CE", ""),
        ("EXAMPLE-LCG2", "se01.example.org", "SRM", "N"),
    }
    assert repeated(samples, "vofeed", "vofeed.xml") == {(0, 0, 0)}


@pytest.mark.parametrize(
    ("command", "file"),
    [(CRIC, "downtimes.json"), (OSG, "rgdowntime.xml"), ((*ARGO, *ARGO_TIMES), "downtimes.csv")],
    ids=["cric", "osg", "argo"],
)
def test_half_of_one_file_keeps_the_others_out_too(
    samples: Workplace, command: tuple[str, ...], file: str
) -> None:
    path = samples.directory / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 5])

    done = samples.run("sam-db", "import", *command)

    assert (done.code, "Traceback" in done.err) == (BAD_DATA, False)
    assert file in done.err and "nothing was changed" in done.err
    assert (endpoints(samples), downtimes(samples)) == (set(), {})
