"""Exports of GOCDB, CRIC and VO feeds as rows, and the files of XML that hold them."""

from __future__ import annotations

import json
import logging
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from sam_pipeline.schema.program.command import BAD_DATA
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_rows import ALL_TYPES, FeedRows, FeedRules, SiteFacts, taken
from sam_pipeline.sql.imports.formats import documents
from sam_pipeline.sql.imports.formats.cric import FEDERATION, read_cric
from sam_pipeline.sql.imports.formats.documents import elements
from sam_pipeline.sql.imports.formats.gocdb import NGI, SCOPE, read_gocdb
from sam_pipeline.sql.imports.formats.vofeed import read_vo_feed
from sam_pipeline.sql.topology.view_rows import Row
from tests.support.database.gocdb_files import (
    document,
    downtime,
    listed_site,
    nested_downtime,
    page,
    service_endpoint,
    site,
    write,
)

START, END = 1_763_971_200, 1_763_985_600
DOWNTIME = {
    "downtimeId": "5001G0",
    "siteName": "EXAMPLE-LCG2",
    "hostName": "ce01.example.org",
    "serviceFlavour": "CE",
    "startTime": "2025-11-24T08:00:00Z",
    "endTime": "2025-11-24T12:00:00Z",
    "classification": "SCHEDULED",
    "severity": "OUTAGE",
    "description": "new switches",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.xml"


def read_endpoints(paths: Sequence[Path]) -> Sequence[Row]:
    return taken(read_gocdb({"endpoints": paths}), FeedRules()).endpoints or []


def read_groups(paths: Sequence[Path]) -> Mapping[str, Sequence[Row]]:
    return taken(read_gocdb({"groups": paths}), FeedRules()).groups


def read_downtimes(paths: Sequence[Path]) -> Sequence[Row]:
    return taken(read_gocdb({"downtimes": paths}), FeedRules()).downtimes or []


def read_services(path: Path) -> Sequence[Row]:
    return taken(read_cric({"endpoints": [path]}), FeedRules()).endpoints or []


def read_federations(path: Path) -> Sequence[Row]:
    return taken(read_cric({"groups": [path]}), FeedRules()).groups[FEDERATION]


def read_feed(path: Path) -> FeedRows:
    return taken(read_vo_feed({"feed": [path]}), FeedRules())


# GOCDB


def test_an_endpoint_has_site_host_flavour_uri_and_flags(file: Path) -> None:
    known = service_endpoint(host="CE01.Example.org.", monitored="n", url=" a:1 ")
    unknown = service_endpoint(host="b", production="", monitored="")

    first, second = read_endpoints([write(file, document(known, unknown))])

    place = {"siteName": "EXAMPLE-LCG2", "hostName": "ce01.example.org", "serviceFlavour": "CE"}
    assert first == {**place, "serviceURI": "a:1", "production": "Y", "monitored": "N"}
    assert not {"production", "monitored"} & second.keys()


def test_of_services_with_one_host_and_flavour_the_monitored_one_counts(file: Path) -> None:
    services = [
        service_endpoint(production="N", url="a:1", key="1G0"),
        service_endpoint(url="b:2", key="2G0"),
        service_endpoint(monitored="N", url="c:3", key="3G0"),
    ]

    for order in (services, services[::-1]):
        [row] = read_endpoints([write(file, document(*order))])
        assert row["serviceURI"] == "b:2"


def test_all_bad_elements_are_reported_with_their_lines_up_to_a_limit(file: Path) -> None:
    bad = [
        service_endpoint(host="two words"),
        service_endpoint(production="x"),
        service_endpoint(site=""),
        site(),
    ]
    with pytest.raises(BadInput) as caught:
        read_endpoints([write(file, document(service_endpoint(), *bad))])
    with pytest.raises(BadInput) as many:
        read_endpoints([write(file, document(*[service_endpoint(host="?")] * 50))])

    size = service_endpoint().count("\n")
    parts = ("hostName 'two words'", "IN_PRODUCTION", "needs siteName", "SITE 14G0: is <SITE>")
    *lines, _ = str(caught.value).splitlines()
    for number, (line, part) in enumerate(zip(lines, parts, strict=True), 1):
        assert line.startswith(f"{file}, line {3 + number * size}: ") and part in line
    assert "and 30 more" in str(many.value).splitlines()[20]


def test_a_site_belongs_to_its_ngi_and_its_scopes(file: Path) -> None:
    def groups(*sites: str) -> dict[str, list[tuple[str, ...]]]:
        found = read_groups([write(file, document(*sites))])
        return {kind: [tuple(row.values()) for row in rows] for kind, rows in found.items()}

    assert groups(site("A", "NGI_SI", ["EGI"]), site("B", "NGI_CH", [])) == {
        NGI: [("A", "NGI_SI", "NGI"), ("B", "NGI_CH", "NGI")],
        SCOPE: [("A", "EGI", "scope")],
    }
    listed = groups(listed_site("A & B", "NGI_SI"), listed_site("C", ""))
    assert listed == {NGI: [("A & B", "NGI_SI", "NGI")]}  # a list of sites has no scopes


def test_both_methods_give_the_same_downtimes(
    file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    services = [("ce01.example.org", "CE"), ("SE01.example.org", "SRM")]
    flat = write(file, document(*(downtime(host=host, flavour=name) for host, name in services)))
    nested = write(tmp_path / "nested.xml", document(nested_downtime(*services)))
    without = write(tmp_path / "none.xml", document(nested_downtime(key="9G0")))

    other = {**DOWNTIME, "hostName": "se01.example.org", "serviceFlavour": "SRM"}
    assert read_downtimes([flat]) == read_downtimes([nested]) == [DOWNTIME, other]
    assert read_downtimes([without]) == []
    assert "9G0" in caplog.text


@pytest.mark.parametrize(
    ("entered", "expected"), [("1763400000", "2025-11-17T17:20:00Z"), ("yesterday", None)]
)
def test_a_downtime_was_announced_when_it_was_entered(
    file: Path, entered: str, expected: str | None
) -> None:
    text = document(downtime()).replace(
        "<START_DATE>", f"<INSERT_DATE>{entered}</INSERT_DATE><START_DATE>"
    )

    [row] = read_downtimes([write(file, text)])

    assert row.get("announcedAt") == expected


@pytest.mark.parametrize(
    ("url", "inner", "expected"),
    [
        ("a:1", ["b:2"], "a:1"),
        ("", ["c:3", "b:2", ""], "b:2"),
        ("", ["b:2", "", "c:3"], "b:2"),
        ("", [], None),
    ],
)
def test_the_uri_of_a_service_is_its_own_or_one_of_its_endpoints(
    file: Path, url: str, inner: Sequence[str], expected: str | None
) -> None:
    urls = "".join(f"<ENDPOINT><URL>{text}</URL></ENDPOINT>" for text in inner)
    service = service_endpoint(url=url)
    first, _, rest = service.partition("<ENDPOINTS>")
    service = f"{first}<ENDPOINTS>{urls}</ENDPOINTS>{rest.partition('</ENDPOINTS>')[2]}"

    [row] = read_endpoints([write(file, document(service))])

    assert row.get("serviceURI") == expected


def test_the_contact_of_a_site_is_its_mail_and_telephone(file: Path) -> None:
    mail, phone = "<CONTACT_EMAIL>a@b.example</CONTACT_EMAIL>", "<CONTACT_TEL>+41 1</CONTACT_TEL>"
    sites = [site("A", more=mail + phone), site("B", more=mail), site("C")]

    found = read_gocdb({"groups": [write(file, document(*sites))]})
    listed = read_gocdb({"groups": [write(file, document(listed_site()))]})

    assert found.contacts == [
        {"siteName": "A", "contact": "a@b.example, +41 1"},
        {"siteName": "B", "contact": "a@b.example"},
    ]
    assert listed.contacts is None


def test_facts_about_a_site_are_those_that_its_element_states(file: Path) -> None:
    more = (
        "<CERTIFICATION_STATUS>Suspended</CERTIFICATION_STATUS>"
        "<PRODUCTION_INFRASTRUCTURE>Production</PRODUCTION_INFRASTRUCTURE>"
        "<COUNTRY>Slovenia</COUNTRY><COUNTRY_CODE>SI</COUNTRY_CODE>"
    )
    text = document(site("A", scopes=["EGI"], more=more), listed_site("B"))

    sites = read_gocdb({"groups": [write(file, text)]}).sites

    assert sites == {
        "A": SiteFacts(["Suspended"], ["Production"], ["EGI"], ["Slovenia", "SI"]),
        "B": SiteFacts(countries=["SI"]),
    }


def test_only_the_odd_service_of_a_downtime_is_left_out(file: Path) -> None:
    text = document(nested_downtime(("ce01.example.org", "CE"), ("two words", "SRM")))

    found = read_gocdb({"downtimes": [write(file, text)]})

    assert [row["hostName"] for row in found.downtimes or ()] == ["ce01.example.org"]
    assert [(item.where, "two words" in item.reason) for item in found.left_out] == [
        (f"{file}, line 3: DOWNTIME 5001G0", True)
    ]


def test_formatted_times_are_used_where_epoch_seconds_are_missing(file: Path) -> None:
    text = document(downtime())
    for name, value in (("START_DATE", START), ("END_DATE", END)):
        text = text.replace(f"<{name}>{value}</{name}>", "")

    [row] = read_downtimes([write(file, text)])

    assert (row["startTime"], row["endTime"]) == ("2025-11-24T09:00:00Z", "2025-11-24T13:00:00Z")


# CRIC

CE = {
    "rcsite": "SITE-A",
    "type": "CE",
    "flavour": "HTCONDOR-CE",
    "endpoint": "CE01.example.org:9619",
    "state": "ACTIVE",
    "status": "production",
    "is_monitored": True,
}
STORAGE = {
    "rcsite": "SITE-A",
    "type": "SE",
    "flavour": None,
    "endpoint": "",
    "protocols": {
        "xrootd": {"endpoint": "root://se01.example.org:1094"},
        "https": {"endpoint": "https://se01.example.org:443/dav"},
        "srm": {"endpoint": "httpg://se02.example.org:8446/srm"},
    },
}


def test_services_of_cric_are_endpoints_by_their_hosts_and_states(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    services = {
        "ce": CE,
        "se": STORAGE,
        "disabled": {**CE, "state": "DISABLED"},
        "testing": {**CE, "endpoint": "a", "status": "testing"},
        "silent": {**CE, "endpoint": "b", "is_monitored": False},
        "nowhere": {**CE, "endpoint": None},
    }
    file.write_text(json.dumps(services))

    keys = ("hostName", "serviceFlavour", "production", "monitored", "serviceURI")
    found = sorted(tuple(row[key] for key in keys) for row in read_services(file))

    assert found == [
        ("a", "HTCONDOR-CE", "N", "Y", "a"),
        ("b", "HTCONDOR-CE", "Y", "N", "b"),
        ("ce01.example.org", "HTCONDOR-CE", "Y", "Y", "CE01.example.org:9619"),
        ("se01.example.org", "SE", "Y", "Y", "root://se01.example.org:1094"),
        ("se02.example.org", "SE", "Y", "Y", "httpg://se02.example.org:8446/srm"),
    ]
    assert "ignoring 1 service without an endpoint, such as nowhere" in caplog.text


def test_a_federation_groups_its_sites(file: Path) -> None:
    file.write_text(json.dumps({"CH-CERN": {"rcsites": ["A", "B", "A"]}, "EMPTY": {}}))
    member = {"groupName": "CH-CERN", "groupType": "federation"}
    assert read_federations(file) == [{"siteName": site, **member} for site in "AB"]

    for sites in ("A", [1], {"A": 1}):
        file.write_text(json.dumps({"CH-CERN": {"rcsites": sites}}))
        with pytest.raises(BadInput, match="CH-CERN: rcsites must be a list"):
            read_federations(file)


# VO feeds

SITE = '<atp_site name="SITE-A">{}</atp_site>'
SERVICE = '<service hostname="ce01.example.org" flavour="CE"{}/>'


def feed(*contents: str, vo: str = "<vo>atlas</vo>") -> str:
    return f"<root>{vo}{''.join(contents)}</root>"


def test_services_and_groups_of_a_feed_are_rows_of_its_vo(file: Path) -> None:
    services = (
        SERVICE.format(' endpoint="ce01.example.org:1" production_status="false"')
        + '<service hostname="SE01.example.org" flavour="SRM"><se_resource path="/x"/></service>'
    )
    groups = '<group name="T2" type="Tier"/><group name="SITE_A" type="atlas_Site"/>'
    text = feed(SITE.format(services + groups), SITE.format(groups))

    rows = read_feed(write(file, text))

    place = {"siteName": "SITE-A", "voName": "atlas"}
    ce = {"hostName": "ce01.example.org", "serviceFlavour": "CE", "production": "N"}
    assert rows.feed == "vofeed:atlas"
    assert rows.endpoints == [
        {**place, **ce, "serviceURI": "ce01.example.org:1"},
        {**place, "hostName": "se01.example.org", "serviceFlavour": "SRM"},
    ]
    kinds = {"T2": "Tier", "SITE_A": "atlas_Site"}
    members = [{"siteName": "SITE-A", "groupName": n, "groupType": t} for n, t in kinds.items()]
    assert rows.groups == {ALL_TYPES: members}
    assert rows.downtimes is None


def test_a_vo_may_have_sites_of_its_own(file: Path) -> None:
    """Two at one grid site, one at two of them, and a service of none."""

    def grid_site(name: str, host: str, *vo_sites: str) -> str:
        service = f'<service hostname="{host}" flavour="CE"/>'
        groups = [f'<group name="{site}" type="Site"/>' for site in vo_sites]
        tier = '<group name="2" type="Tier"/>'
        return f'<atp_site name="{name}">{service}{"".join(groups)}{tier}</atp_site>'

    text = feed(
        grid_site("GRID-1", "h1", "North"),
        grid_site("GRID-1", "h2", "South"),
        grid_site("GRID-2", "h3", "South"),
        grid_site("GRID-2", "h4", "East", "West"),
        grid_site("GRID-3", "h5"),
        grid_site("Same", "h6", "Same"),
    )

    rows = read_vo_feed({"feed": [write(file, text)]}, "Site")

    keys = ("siteName", "gridSite", "hostName")
    assert [tuple(row.get(key, "") for key in keys) for row in rows.endpoints or ()] == [
        ("North", "GRID-1", "h1"),
        ("South", "GRID-1", "h2"),
        ("South", "GRID-2", "h3"),
        ("East", "GRID-2", "h4"),
        ("West", "GRID-2", "h4"),
        ("GRID-3", "", "h5"),
        ("Same", "", "h6"),
    ]
    members = {(row["siteName"], row["groupType"]) for row in rows.groups[ALL_TYPES]}
    sites = ("North", "South", "East", "West", "GRID-3", "Same")
    assert members == {(site, "Tier") for site in sites}
    groups = "".join(
        f'<group name="{site}" type="{kind}"/>'
        for site, kind in (
            ("East", "Site"),
            ("West", "Site"),
            ("East", "Tier2s"),
            ("West", "Tier3s"),
        )
    )
    own = read_vo_feed({"feed": [write(file, feed(SITE.format(groups)))]}, "Site")
    assert [(row["siteName"], row["groupName"]) for row in own.groups[ALL_TYPES]] == [
        ("East", "Tier2s"),
        ("West", "Tier3s"),
    ]
    with pytest.raises(BadInput, match="no group has the type site: did you mean Site"):
        read_vo_feed({"feed": [file]}, "site")


# Files of XML

BOMB = """<?xml version="1.0"?>
<!DOCTYPE results [ <!ENTITY a "aaaaaaaaaa"> <!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"> ]>
<results><A>&b;</A></results>
"""
EXTERNAL = """<!DOCTYPE results [<!ENTITY x SYSTEM "file:///etc/passwd">]>
<results><A>&x;</A></results>
"""
EXTERNAL_DTD = '<!DOCTYPE results SYSTEM "http://example.org/x.dtd"><results><A/></results>'


def tags(path: Path) -> list[tuple[str, int]]:
    """Names of the elements and the lines where they begin."""
    found = elements(path, "results")
    return [(element.tag, int(where.rpartition(" ")[2])) for where, element in found]


@pytest.mark.parametrize("chunk_bytes", [1, 65536])
@pytest.mark.parametrize(
    "between", ["\n", "", '\n<?xml version="1.0" encoding="UTF-8"?>\n', "<!-- page 2 -->\n<?x y?>"]
)
def test_consecutive_documents_are_read_as_one(
    file: Path, monkeypatch: pytest.MonkeyPatch, between: str, chunk_bytes: int
) -> None:
    monkeypatch.setattr(documents, "CHUNK_BYTES", chunk_bytes)
    pages = f"{between}<results/>{between}<results><C/></results>\n\n"
    file.write_text(
        f'<results>\n<A/>\n<B x="1">a<D>b &amp; <![CDATA[<c>]]></D></B></results>{pages}'
    )

    assert tags(file) == [("A", 2), ("B", 3), ("C", 3 + 2 * between.count("\n"))]
    _, (_, second), _ = elements(file, "results")
    assert (second.get("x"), second.text, second.findtext("D")) == ("1", "a", "b & <c>")


TWO_VERSIONS = page(downtime()) + page(downtime(end=END + 60))
REFUSED: dict[Callable[[Path], object], list[tuple[str, str]]] = {
    lambda path: read_downtimes([path]): [
        (TWO_VERSIONS, "two versions"),
        (document(downtime(start=END, end=START)), "before startTime"),
        (document(downtime(key="")), "has no PRIMARY_KEY"),
        (document(downtime(host="", site="")), "hostName or siteName"),
        (document(downtime().replace(f"{START}", "soon")), "'soon' is not a time"),
    ],
    read_services: [
        ("[" * 100_000, "not valid JSON"),
        ('{"ce": {}, "ce": {}}', "'ce' appears twice"),
        ("[]", "must be an object of named objects"),
        ('{"ce": {"rcsite": 1}}', "ce: rcsite must be a string"),
        ('{"ce": {"rcsite": "A", "protocols": [1]}}', "ce: protocols must be an object"),
        ('{"ce": {"rcsite": "A", "endpoint": "http://[x"}}', "ce: URL"),
        ('{"ce": {"rcsite": "A", "endpoint": "h"}}', "ce: .*serviceFlavour"),
    ],
    read_feed: [
        (feed(vo=""), "must name one VO"),
        (feed(vo="<vo>a:b</vo>"), "must name one VO"),
        (feed(SITE.format(SERVICE.format(' production_status="maybe"'))), "1: production_status"),
        (feed(SITE.format('<service flavour="CE"/>')), "line 1: .*hostName"),
        (feed(SITE.format('<group name="T2"/>')), "line 1: .*groupType"),
        ("<html><body>Maintenance</body></html>", "begins with <html>"),
    ],
    tags: [
        # A document type is refused before anything is expanded.
        *((text, "has a document type") for text in (BOMB, EXTERNAL, EXTERNAL_DTD)),
        (f"<results/>\n{BOMB[22:]}", "line 2: has a document type"),
        ("", "line 1: the file ends here"),
        ("<results>\n<A></results>", "line 2: not valid XML: mismatched tag"),
        ("<results/>\n<results>\n&nbsp;</results>", "line 3: not valid XML: undefined entity"),
        (
            "<results/>\n<error>no such method</error>",
            "line 2: begins with <error>.*no such method",
        ),
        ("<error>Unsupported parameter: certification</error>", "server: Unsupported parameter"),
        ("<html>\n<p>Sorry</p></html>", "line 1: begins with <html>, .* an error of the server;"),
        ('<?xml version="1.0" encoding="x-none"?><results/>', "unknown encoding"),
    ],
}


@pytest.mark.parametrize(
    ("read", "text", "problem"),
    [(read, *case) for read, cases in REFUSED.items() for case in cases],
)
def test_a_bad_file_is_refused_as_a_whole(
    file: Path, read: Callable[[Path], object], text: str, problem: str
) -> None:
    file.write_text(text)

    with pytest.raises(BadInput, match=problem) as caught:
        read(file)

    assert caught.value.exit_code == BAD_DATA


def test_memory_does_not_grow_with_the_file(file: Path) -> None:
    element = f"<A><B>{'x' * 1000}</B></A>\n"
    file.write_text(f"<results>\n{element * 10_000}</results>\n")

    tracemalloc.start()
    number = sum(1 for _ in elements(file, "results"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (number, peak < 3_000_000) == (10_000, True)
