"""`sam-db import` of feeds as they really look, in either database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.program.command import BAD_DATA, OK
from tests.support.database.gocdb_files import (
    document,
    endpoint_elements,
    listed_site,
    nested_downtime,
    service_endpoint,
    site,
    write,
)
from tests.support.database.sam_db import SamDb, sam_db_on
from tests.support.database.sql_rows import stored
from tests.support.feed_server import FeedServer, serving, vo_feed

START, END = 1_793_520_000, 1_793_563_200  # 2026-11-01 08:00 to 20:00
AT = ("--at", "2026-10-31T12:00:00Z")


@pytest.fixture
def sam_db(engine: Engine, tmp_path: Path) -> SamDb:
    return sam_db_on(engine, tmp_path)


@pytest.fixture(scope="module")
def public_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FeedServer]:
    with serving(tmp_path_factory.mktemp("gocdb"), requires_certificate=False) as server:
        yield server


def configure(sam_db: SamDb, *lines: str) -> tuple[str, ...]:
    """A feed in sam.toml with further keys; the options of commands that use it."""
    (sam_db.directory / "sam.toml").write_text("\n".join(["[[import.feed]]", *lines, ""]))
    return ("--config", "sam.toml")


def hosts(engine: Engine) -> set[object]:
    return {row["hostName"] for row in stored(engine, "serviceEndpoint") if "validTo" not in row}


def test_downtimes_of_gocdb_have_the_flavours_of_the_feed_of_a_vo(
    engine: Engine, sam_db: SamDb, tmp_path: Path
) -> None:
    services = [("ce01.example.org", "HTCONDOR-CE"), ("dav.example.org", "WEBDAV")]
    theirs = [("ce01.example.org", "org.opensciencegrid.htcondorce"), ("dav.example.org", "webdav")]
    topology = write(tmp_path / "vo.xml", vo_feed("cms", {"EXAMPLE-LCG2": services}))
    lost = nested_downtime(("dav.example.org", "Site-BDII"), key="9G0", start=START, end=END)
    announced = [nested_downtime(*theirs, start=START, end=END), lost]
    downtimes = write(tmp_path / "d.xml", document(*announced))
    sam_db("import", "vofeed", topology, *AT)

    done = sam_db.document("import", "gocdb", "--downtimes", downtimes, *AT)
    again = sam_db("import", "gocdb", "--downtimes", downtimes, *AT)

    found = {(row["hostName"], row["serviceFlavour"]) for row in stored(engine, "downtime")}
    assert found == {*services, ("dav.example.org", "Site-BDII")}
    [warning] = done["downtimes_without_endpoint"]
    assert "1 downtime" in warning and "9G0" in warning and "flavour Site-BDII" in warning
    assert "1 downtime without an endpoint in the topology" in again.out


def test_only_certified_sites_of_a_public_gocdb_are_imported(
    engine: Engine, sam_db: SamDb, public_server: FeedServer
) -> None:
    sites = {"GOOD": "Certified", "SUSP": "Suspended", "CAND": "Candidate"}
    public_server.elements = {
        "get_service_endpoint": [service_endpoint(host=f"{name}.org", site=name) for name in sites],
        "get_site_list": [listed_site(name) for name in sites],
        "get_downtime_nested_services": [
            nested_downtime((f"{name}.org", "CE"), key=name, site=name) for name in sites
        ],
    }
    public_server.certified = {status: [listed_site(name)] for name, status in sites.items()}
    gocdb = ("import", "gocdb", "--url", public_server.gocdb)
    keys = (
        'kind = "gocdb"',
        f'url = "{public_server.gocdb}"',
        f'ca_file = "{public_server.ca_file}"',
    )

    everything = sam_db.document(*gocdb, "--dry-run", *configure(sam_db, *keys))
    only = configure(sam_db, *keys, 'certification = ["Certified", "Uncertified"]')
    certified = sam_db.document(*gocdb, *only)
    by_scope = sam_db(
        *gocdb, *configure(sam_db, *keys, 'certification = ["Certified"]', 'scope = ["EGI"]')
    )

    assert [kind["read"] for kind in everything["kinds"]] == [3, 3, 3]
    assert [kind["new"] for kind in certified["kinds"]] == [1, 1, 1]
    assert certified["filtered_sites"] == {"not in the list of sites": ["CAND", "SUSP"]}
    assert hosts(engine) == {"good.org"}
    [(scoped, _)] = [each for each in public_server.requests if each[0].parameters.get("scope")][:1]
    assert (scoped.parameters["scope"], by_scope.code) == ("EGI", OK)


def test_the_error_of_gocdb_is_in_ours(sam_db: SamDb, public_server: FeedServer) -> None:
    keys = (f'url = "{public_server.gocdb}?colour=red"', f'ca_file = "{public_server.ca_file}"')
    configured = configure(sam_db, 'kind = "gocdb"', *keys)

    done = sam_db("import", "feeds", *configured)

    assert (done.code, "Unsupported parameter: colour" in done.err) == (BAD_DATA, True)


def test_a_filter_for_files_is_that_of_the_feed_in_sam_toml(
    engine: Engine, sam_db: SamDb, tmp_path: Path
) -> None:
    names = {"GOOD": "Certified", "SUSP": "Suspended"}
    sites = [
        site(name, more=f"<CERTIFICATION_STATUS>{status}</CERTIFICATION_STATUS>")
        for name, status in names.items()
    ]
    services = [service_endpoint(host=f"{name}.org", site=name) for name in names]
    files = (
        "--endpoints", write(tmp_path / "e.xml", document(*services)),
        "--groups", write(tmp_path / "g.xml", document(*sites)),
    )  # fmt: skip
    only = configure(sam_db, 'kind = "gocdb"', 'url = "https://x"', 'certification = ["Certified"]')

    done = sam_db("import", "gocdb", *files, *only)
    unlisted = sam_db("import", "gocdb", *files[:2], *only)

    assert "not taken: 1 site (certification): SUSP" in done.out
    assert hosts(engine) == {"good.org"}
    assert (unlisted.code, "needs the list of sites" in unlisted.err) == (BAD_DATA, True)


def test_an_odd_host_stops_no_other_row_if_the_import_keeps_going(
    engine: Engine, sam_db: SamDb, tmp_path: Path
) -> None:
    odd = service_endpoint(host="data portal host", flavour="eu.example.portal", key="2G0")
    command = ("import", "gocdb", "--endpoints")
    file = write(tmp_path / "e.xml", document(service_endpoint(), odd))
    many = write(tmp_path / "m.xml", document(service_endpoint(), *[odd] * 21))

    refused, done = sam_db(*command, file), sam_db(*command, file, "--keep-going")
    too_many = sam_db(*command, many, "--keep-going", "--accept-shrinking")

    assert (refused.code, "data portal host" in refused.err) == (BAD_DATA, True)
    assert (done.code, hosts(engine)) == (OK, {"ce01.example.org"})
    assert "left out: " in done.err and "2G0: hostName 'data portal host'" in done.err
    assert (too_many.code, "21 elements of 22 are too many" in too_many.err) == (BAD_DATA, True)


def test_files_larger_than_a_feed_may_be_are_not_read(sam_db: SamDb, tmp_path: Path) -> None:
    file = write(tmp_path / "e.xml", document(service_endpoint()))
    limited = configure(sam_db, 'kind = "gocdb"', 'url = "https://x"', "max_bytes = 100")

    done = sam_db("import", "gocdb", "--endpoints", file, *limited)

    assert (done.code, "max_bytes" in done.err) == (BAD_DATA, True)


def test_a_small_feed_may_lose_a_row_but_not_all(
    engine: Engine, sam_db: SamDb, tmp_path: Path
) -> None:
    command = ("import", "gocdb", "--endpoints")

    def take(*numbers: int, at: str) -> int:
        file = write(tmp_path / "e.xml", document(*endpoint_elements(numbers)))
        return sam_db(*command, file, "--at", f"2026-11-0{at}T00:00Z").code

    assert [take(1, 2, 3, 4, at="1"), take(1, 2, 3, at="2"), take(at="3")] == [OK, OK, BAD_DATA]
    assert len(hosts(engine)) == 3


def test_contacts_of_a_feed_are_set_changed_and_removed(
    engine: Engine, sam_db: SamDb, tmp_path: Path
) -> None:
    def take(day: int, **mails: str) -> None:
        sites = [
            site(name, more=f"<CONTACT_EMAIL>{mail}</CONTACT_EMAIL>")
            for name, mail in mails.items()
        ]
        file = write(tmp_path / "g.xml", document(*sites))
        at = f"2026-11-0{day}T00:00Z"
        sam_db.document("import", "gocdb", "--groups", file, "--at", at)

    take(1, A="a@x", B="b@x", C="c@x")
    take(2, A="a@x", B="new@x")
    take(2, A="a@x", B="new@x")

    contacts = {row["siteName"]: row.get("contact") for row in stored(engine, "siteContact")}
    assert contacts == {"A": "a@x", "B": "new@x", "C": None}


def test_a_dry_run_shows_each_difference_as_a_line(sam_db: SamDb, tmp_path: Path) -> None:
    def file(*elements: str) -> Path:
        return write(tmp_path / "e.xml", document(*elements))

    command = ("import", "gocdb", "--endpoints")
    kept, *others = (service_endpoint(host=host, url="u") for host in ("a", "b", "c"))
    sam_db.document(*command, file(kept, *others), *AT)

    changed = service_endpoint(host="b", url="u", production="N")
    new = file(kept, changed, service_endpoint(host="d", url="u"))
    done = sam_db(*command, new, "--at", "2026-11-01T00:00Z", "--dry-run")
    later, facts = "2026-11-01T00:00:00Z", "serviceURI u, production Y, monitored Y"

    *_, last = done.out.splitlines()
    lines = [
        line for line in done.out.splitlines() if line[:1] in ("+", "-", "~") and "  " not in line
    ]
    assert last == "nothing was written"
    assert sorted(lines) == [
        f"+ serviceEndpoint EXAMPLE-LCG2 d CE: {facts}, validFrom {later}",
        f"- serviceEndpoint EXAMPLE-LCG2 c CE: {facts}, validFrom {AT[1]}",
        f"~ serviceEndpoint EXAMPLE-LCG2 b CE: production Y -> N, validFrom {AT[1]} -> {later}",
    ]


TABLE = """downtimeId,siteName,startTime,endTime,classification,severity
D1,S,2026-11-01T08:00:00Z,{}:00:00Z,SCHEDULED,OUTAGE
"""


def test_a_dry_run_of_a_table_shows_each_difference_and_writes_nothing(
    engine: Engine, sam_db: SamDb, tmp_path: Path
) -> None:
    command = ("import", "csv", "--class", "downtime")
    first = write(tmp_path / "1.csv", TABLE.format("2026-11-01T20"))
    moved = write(tmp_path / "2.csv", TABLE.format("2026-11-01T22"))

    new = sam_db(*command, first, "--dry-run")
    before = stored(engine, "downtime")
    sam_db.document(*command, first)
    change = sam_db(*command, moved, "--dry-run")
    same = sam_db(*command, first, "--dry-run")

    assert (new.out.split()[:4], before) == (["+", "downtime", "D1", "S:"], [])
    assert change.out.splitlines()[0] == (
        "~ downtime D1 S: endTime 2026-11-01T20:00:00Z -> 2026-11-01T22:00:00Z"
    )
    assert same.out.splitlines() == [
        f"{first}: 1 line: 0 new or changed, 1 unchanged, 0 left out; nothing was written"
    ]
    assert [row["endTime"] for row in stored(engine, "downtime")] == ["2026-11-01T20:00:00Z"]
