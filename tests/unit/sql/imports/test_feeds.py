"""The tables [[import.feed]], the documents that a feed consists of, and the pages of GOCDB."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.program.command import CONFIG, UNAVAILABLE
from sam_pipeline.schema.records.classes import DOWNTIME, SERVICE_ENDPOINT, MessageClass
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.download import answered_by, documents_of, next_page
from sam_pipeline.sql.imports.feed_changes import (
    FeedChanges,
    FeedSnapshot,
    Window,
    downtime_changes,
    topology_changes,
)
from sam_pipeline.sql.imports.feed_config import FeedConfig, feed_at, load_feeds
from sam_pipeline.sql.topology.view_rows import HAND, Row, key_of
from tests.support.database.gocdb_files import service_endpoint, write
from tests.support.database.sam_db import SamDb

URL = "https://goc.example.org/gocdbpi"
GOCDB = f'kind = "gocdb"\nurl = "{URL}"\n'
VO = 'kind = "vofeed"\nurl = "https://vo.example.org/feed.xml"\n'
PUBLIC = f"{URL}/public/?method=get_service_endpoint"
WINDOW = Window("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")


@pytest.fixture
def load(tmp_path: Path) -> Any:
    """Loads feeds from the text of their tables."""

    def load(*tables: str) -> tuple[FeedConfig, ...]:
        (tmp_path / "sam.toml").write_text("".join(f"[[import.feed]]\n{t}" for t in tables))
        return load_feeds(argparse.Namespace(config=str(tmp_path / "sam.toml")))

    return load


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('kind = "gocbd"\nurl = "https://x"\n', "kind: expected gocdb, vofeed, cric"),
        ('kind = "gocdb"\n', "url is missing"),
        ('kind = "gocdb"\nurl = "ftp://x"\n', "is not the URL of a server"),
        ('kind = "gocdb"\nurl = "https://jane@x"\n', "must not contain a login"),
        (GOCDB + "urll = 1\n", "unknown key urll (did you mean url"),
        (GOCDB + 'contents = ["endpoint"]\n', "endpoint: expected endpoints, groups, downtimes"),
        (GOCDB.replace("gocdb", "osg", 1) + 'contents = ["groups"]\n', "osg has no groups"),
        (GOCDB + 'timeout = "0s"\n', "expected more than 0s"),
        (GOCDB + 'flavours = { webdav = "" }\n', "'webdav': expected a name and a flavour"),
        (GOCDB + 'contents = ["endpoints"]\nscope = ["EGI"]\n', "scope needs the list of sites"),
        (GOCDB.replace('pi"', 'pi?scope="') + 'scope = ["EGI"]\n', "scope is in the url as well"),
        (GOCDB + 'ca_file = "/nowhere"\n', "/nowhere: no such file"),
        (GOCDB + 'proxy = "http://u:p@x"\n', "use proxy_password_file"),
        (GOCDB + 'key_file = "key.pem"\n', "key_file without certificate_file"),
        (GOCDB.replace("https", "http") + 'certificate_file = "key.pem"\n', "used with http://"),
        (GOCDB + 'certificate_file = "open.pem"\n', "accessible to other users"),
        (f"{GOCDB}[[import.feed]]\n{GOCDB.replace('goc.', 'goc2.')}", "gocdb appears 2 times"),
        (f"{VO}[[import.feed]]\n{VO}", "feed.xml appears 2 times"),
        (GOCDB + 'site_group = "CMS_Site"\n', "site_group: gocdb has none"),
    ],
)
def test_each_problem_is_reported(load: Any, tmp_path: Path, table: str, problem: str) -> None:
    for name, mode in (("key.pem", 0o600), ("open.pem", 0o644)):
        (tmp_path / name).write_text("PRIVATE KEY")
        (tmp_path / name).chmod(mode)

    with pytest.raises(ConfigError) as caught:
        load(table)

    assert problem in str(caught.value)
    with pytest.raises(ConfigError) as several:
        load('kind = "x"\nurl = "y"\n', GOCDB + "z = 1\n")
    assert len(several.value.problems) == 3


def test_only_the_table_with_the_same_url_describes_a_url(load: Any, tmp_path: Path) -> None:
    load(GOCDB + 'timeout = "7s"\n')
    args = argparse.Namespace(config=str(tmp_path / "sam.toml"))

    assert feed_at(args, "gocdb", URL).timeout_s == 7
    for kind, url in (("gocdb", "https://evil.example"), ("cric", URL)):
        assert feed_at(args, kind, url) == FeedConfig(kind=kind, url=url)
    with pytest.raises(ConfigError, match="--url is not the URL of a server"):
        feed_at(args, "gocdb", "goc.example.org")


def test_credentials_of_systemd_are_for_feeds_without_a_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    (tmp_path / "sam-import-certificate").touch()
    own = FeedConfig(kind="gocdb", url="https://x", certificate_file=tmp_path / "own.pem")
    without, plain = (
        FeedConfig(kind="gocdb", url="https://x"),
        FeedConfig(kind="gocdb", url="http://x"),
    )

    assert without.tls_files.certificate_file == tmp_path / "sam-import-certificate"
    assert without.tls_files.key_file is None  # the file of the certificate contains it
    assert own.tls_files.certificate_file == tmp_path / "own.pem"
    assert plain.tls_files.certificate_file is None


@pytest.mark.parametrize(
    ("server", "is_warned"),
    [("http://goc.example.org", True), (URL, False), ("http://127.0.0.1:1", False)],
)
def test_a_feed_without_tls_is_imported_with_a_warning(
    load: Any, database: Path, sam_db: SamDb, server: str, is_warned: bool
) -> None:
    load(f'kind = "gocdb"\nurl = "{server}"\nproxy = "http://127.0.0.1:1"\ntimeout = "0.1s"\n')

    done = sam_db("import", "feeds", "--config", "sam.toml")

    assert (done.code, "use https://" in done.err) == (UNAVAILABLE, is_warned)
    load()
    assert sam_db("import", "feeds", "--config", "sam.toml").code == CONFIG


def urls(kind: str, url: str, **settings: Any) -> list[str]:
    return [
        document.url
        for document in documents_of(FeedConfig(kind=kind, url=url, **settings), WINDOW)
    ]


def test_documents_depend_on_certificate_and_kind(tmp_path: Path) -> None:
    settings = {"certificate_file": tmp_path, "contents": ("groups",)}
    cric, vo = "https://cric.example.org", "https://vo.example.org/feed.xml?v=1"
    days = "windowstart=2026-11-01&windowend=2026-12-01"

    for url in (URL, f"{URL}/", f"{URL}/public/"):
        assert urls("gocdb", url) == [
            f"{PUBLIC}&next_cursor=0",
            f"{URL}/public/?method=get_site_list",
            f"{URL}/public/?method=get_downtime_nested_services&{days}&next_cursor=0",
        ]
    assert urls("gocdb", f"{URL}?scope=EGI,wlcg&scope_match=any", **settings) == [
        f"{URL}/private/?method=get_site&scope=EGI%2Cwlcg&scope_match=any&next_cursor=0"
    ]
    queries = [f"{cric}/api/core/{name}/query/?json" for name in ("service", "federation")]
    assert (urls("cric", f"{cric}/"), urls("vofeed", vo)) == (queries, [vo])


def test_gocdb_is_asked_for_the_sites_that_only_it_can_choose(tmp_path: Path) -> None:
    conditions = {"certification": ("Certified", "Candidate"), "infrastructure": ("Production",)}
    scope = "scope=EGI%2Cwlcg&scope_match=any"
    groups = {"contents": ("groups",), "scope": ("EGI", "wlcg"), **conditions}
    public = FeedConfig(kind="gocdb", url=URL, **groups)
    protected = FeedConfig(kind="gocdb", url=URL, **groups, certificate_file=tmp_path)

    assert [document.url for document in documents_of(public, WINDOW)] == [
        f"{URL}/public/?method=get_site_list&{scope}&certification_status={status}"
        "&production_status=Production"
        for status in conditions["certification"]
    ]
    assert [document.url for document in documents_of(protected, WINDOW)] == [
        f"{URL}/private/?method=get_site&{scope}&next_cursor=0"
    ]
    assert answered_by(public) == ["certification", "infrastructure", "scope"]
    assert not answered_by(protected)


def page(elements: int, link: str | None, count: str = "", size: str = "") -> str:
    href = f'<link rel="next" href="{link}"/>' if link is not None else ""
    counts = f"<count>{count}</count><max_page_size>{size}</max_page_size>"
    services = "".join(service_endpoint(host=f"h{number}") for number in range(elements))
    return f"<results><meta>{href}{counts}</meta>{services}</results>"


INSIDE = "http://inside.invalid:8080/gocdbpi/x?method=other&amp;next_cursor=117"
NEXT = "/?next_cursor=7"


@pytest.mark.parametrize(
    ("text", "seen", "outcome"),
    [
        (page(2, INSIDE, "2", "2"), (), f"{PUBLIC}&next_cursor=117"),  # only the cursor is used
        ("<results/>", (), None),  # a page that is not full is the last
        (page(0, None), (), None),
        (page(3, NEXT, "3", "100"), (), None),
        (page(1, NEXT, "2", "2"), (), BadInput("1 of 2 elements")),
        (page(2, None, "2", "2"), (), BadInput("next_cursor=''")),
        (page(2, "/?other=7", "2", "2"), (), BadInput("next_cursor=''")),
        (page(2, NEXT, "2", "2"), ("7",), BadInput("next_cursor='7'")),
        ("<results/>", ("7",), BadInput("without <meta>")),
    ],
)
def test_a_full_page_leads_to_the_next_and_half_a_page_is_refused(
    tmp_path: Path, text: str, seen: tuple[str, ...], outcome: str | BadInput | None
) -> None:
    path = write(tmp_path / "page.xml", text)

    if isinstance(outcome, BadInput):
        with pytest.raises(BadInput, match=str(outcome)):
            next_page(f"{PUBLIC}&next_cursor=0", path, set(seen))
    else:
        assert next_page(f"{PUBLIC}&next_cursor=0", path, set(seen)) == outcome


# Changes by a snapshot, applied to a small model of the class views -------------------------------

FEED = "feed gocdb"
MESSAGE = {"source": "message", "timestamp": "2026-11-01T00:00:00Z"}
DAY1, DAY2, DAY3, DAY4, DAY5 = (f"2026-11-0{day}T06:00:00Z" for day in (1, 2, 3, 4, 5))
NOW = "2026-11-20T00:00:00Z"
NOVEMBER = Window("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")


def endpoint(host: str = "ce01", **details: str) -> Row:
    row = {"siteName": "A", "hostName": host, "serviceFlavour": "CE", "production": "Y"}
    return {**row, "monitored": "Y", **details}


def downtime(downtime_id: str = "1G0", start: str = DAY1, end: str = DAY2, **more: str) -> Row:
    row = {"downtimeId": downtime_id, "siteName": "A", "hostName": "ce01", "startTime": start}
    return {**row, "endTime": end, "classification": "SCHEDULED", "severity": "OUTAGE", **more}


class View:
    """Keeps what was said as the class views do (docs/database.md)."""

    def __init__(self, message_class: MessageClass, rows: Iterable[Row] = ()) -> None:
        self.message_class = message_class
        self.said: list[Row] = []
        self.insert(rows)

    def insert(self, rows: Iterable[Row]) -> None:
        self.said += rows

    def last(self, rows: Iterable[Row]) -> dict[tuple[str, ...], Row]:
        """The last of these rows about each key."""
        in_order = sorted(rows, key=lambda row: (row["source"] == HAND, row["timestamp"]))
        return {key_of(row, self.message_class.natural_key): row for row in in_order}

    @property
    def rows(self) -> dict[tuple[str, ...], Row]:
        """What holds."""
        return self.last(self.said)

    def last_of_feed(self) -> list[Row]:
        """What the feed said last about each key, as `last_said` returns it."""
        return [
            {**row, "holds": "1"} if self.rows[key] is row else row
            for key, row in self.last(r for r in self.said if r["source"] == FEED).items()
        ]

    def at(self, moment: str) -> dict[str, Row]:
        """Topology: the row that is valid at a moment, by host."""
        valid = [
            row
            for row in self.rows.values()
            if row["validFrom"] <= moment and row.get("validTo", "9") > moment
        ]
        return {row["hostName"]: row for row in sorted(valid, key=lambda row: row["validFrom"])}


def take(
    view: View,
    at: str,
    *exported: Row,
    accept_shrinking: bool = True,
    since: str | None = None,
    endpoints: Sequence[Row] = (),
) -> FeedChanges:
    """Compare and insert."""
    snapshot = FeedSnapshot("gocdb", at, since, NOVEMBER, accept_shrinking)
    said, holding = view.last_of_feed(), list(view.rows.values())
    if view.message_class is DOWNTIME:
        changes = downtime_changes(exported, said, holding, snapshot, endpoints)
    else:
        changes = topology_changes("endpoints", SERVICE_ENDPOINT, exported, said, snapshot)
    view.insert(changes.rows)
    return changes


def counts(changes: FeedChanges) -> tuple[int, ...]:
    """new, changed, ended, unchanged, kept"""
    return changes.new, changes.changed, changes.ended, changes.unchanged, changes.kept


NOON, MIDNIGHT = "2026-11-03T12:00:00Z", "2026-11-04T00:00:00Z"


@pytest.mark.parametrize(
    ("ends", "end", "expected"),
    [
        ((DAY3,), DAY5, MIDNIGHT),  # decommissioned during its downtime
        ((DAY3,), NOON, NOON),
        ((DAY2,), DAY5, DAY3),  # yesterday
        ((DAY3, ""), DAY5, DAY3),  # another endpoint of the host stays
        ((), DAY5, DAY3),
    ],
)
def test_a_downtime_that_vanishes_with_its_endpoint_lasts_until_the_end_of_the_day(
    ends: Sequence[str], end: str, expected: str
) -> None:
    endpoints = [
        endpoint(serviceFlavour=f"CE{number}", validFrom=DAY1, **({"validTo": day} if day else {}))
        for number, day in enumerate(ends)
    ]
    view = View(DOWNTIME)
    take(view, DAY1, downtime(end=end))

    take(view, DAY3, endpoints=endpoints)
    again = take(view, NOON, endpoints=endpoints)

    [row] = view.rows.values()
    assert (row["endTime"], counts(again)) == (expected, (0, 0, 0, 0, 0))


def test_a_downtime_of_a_grid_site_vanishes_with_an_endpoint_there() -> None:
    of_vo = endpoint(siteName="T2_A", gridSite="A", validFrom=DAY1, validTo=DAY3)
    view = View(DOWNTIME)
    take(view, DAY1, downtime(end=DAY5, siteName="A"))

    take(view, DAY3, endpoints=[of_vo])

    [row] = view.rows.values()
    assert row["endTime"] == MIDNIGHT


def test_a_downtime_that_vanishes_ends_at_once_if_its_endpoint_has_only_changed() -> None:
    changed = [
        endpoint(validFrom=DAY1, validTo=DAY3),
        endpoint(validFrom=DAY3, production="N"),
    ]
    view = View(DOWNTIME)
    take(view, DAY1, downtime(end=DAY5))

    take(view, DAY3, endpoints=changed)

    [row] = view.rows.values()
    assert row["endTime"] == DAY3


def flags(rows: Mapping[str, Row]) -> dict[str, tuple[str, ...]]:
    keys = ("serviceURI", "production", "monitored")
    return {host: key_of(row, keys) for host, row in rows.items()}


# Topology


def test_more_than_a_fifth_does_not_vanish_without_accept_shrinking() -> None:
    view = View(SERVICE_ENDPOINT)
    hosts = [endpoint(f"h{number}") for number in range(10)]
    take(view, DAY1, *hosts)

    for gone in (3, 10):
        with pytest.raises(BadInput, match=f"{gone} of 10 rows from GOCDB"):
            take(view, DAY2, *hosts[gone:], accept_shrinking=False)
    assert take(view, DAY2, *hosts[2:], accept_shrinking=False).ended == 2
    assert take(view, DAY3, *hosts[9:]).ended == 7


def test_another_snapshot_of_the_same_time_or_an_older_one_is_refused() -> None:
    view = View(SERVICE_ENDPOINT)
    take(view, DAY1, endpoint("a"))
    take(view, DAY3, endpoint("a"), endpoint("b"))

    for at in (DAY3, DAY2):
        with pytest.raises(BadInput, match=f"{at} differs from .* {DAY3}"):
            take(view, at, endpoint("a"))


def test_endpoints_of_messages_are_never_closed_and_count_again_after_gocdb() -> None:
    message: Row = {**endpoint("a", monitored="N"), "validFrom": DAY1, **MESSAGE}
    view = View(SERVICE_ENDPOINT, [message])

    take(view, DAY2, endpoint("a"), accept_shrinking=False)
    monitored = [view.at(day)["a"]["monitored"] for day in (DAY1, DAY2)]
    changes = take(view, DAY3, endpoint("b"))

    assert monitored == ["N", "Y"]
    assert counts(changes) == (1, 0, 1, 0, 0)
    assert view.at(DAY3)["a"] == message


def test_an_end_announced_by_another_source_is_kept() -> None:
    view = View(SERVICE_ENDPOINT)
    take(view, DAY1, endpoint("a"), endpoint("b"))
    ended = {**endpoint("a"), "validFrom": DAY1, "validTo": DAY4, **MESSAGE, "timestamp": DAY2}
    view.insert([ended])

    before = counts(take(view, DAY3, endpoint("a"), endpoint("b"), endpoint("c")))
    after = counts(take(view, DAY5, endpoint("b"), endpoint("c")))

    # The feed has said "a" already, and it may end only what holds by its own word.
    assert (before, after) == ((1, 0, 0, 2, 0), (0, 0, 0, 2, 0))
    assert "a" in view.at(DAY3)
    assert "a" not in view.at(DAY4)


def test_a_row_with_the_key_of_another_source_is_said_as_well() -> None:
    message = {**endpoint(monitored="N"), "validFrom": DAY1, **MESSAGE}
    view = View(SERVICE_ENDPOINT, [message])

    take(view, DAY2, endpoint(), since=DAY1)

    [row] = view.rows.values()
    assert (row["monitored"], row["source"], len(view.said)) == ("Y", FEED, 2)


endpoints = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.fixed_dictionaries(
        {"production": st.sampled_from("YN"), "monitored": st.sampled_from("YN")},
        optional={"serviceURI": st.sampled_from(["x", "y"])},
    ),
)


@given(st.lists(endpoints, max_size=6), endpoints)
def test_the_topology_matches_each_snapshot_and_the_past_is_kept(
    snapshots: Sequence[Mapping[str, Mapping[str, str]]], foreign: Mapping[str, Mapping[str, str]]
) -> None:
    others = {f"other-{host}": details for host, details in foreign.items()}
    message = {"validFrom": "2026-01-01T00:00:00Z", **MESSAGE}
    view = View(SERVICE_ENDPOINT, ({**endpoint(h, **d), **message} for h, d in others.items()))
    times = [format_time(datetime(2026, 11, 1 + day, tzinfo=UTC)) for day in range(6)]
    steps = list(zip(times, snapshots, strict=False))

    for at, hosts in steps:
        exported = [endpoint(host, **details) for host, details in hosts.items()]
        changes = take(view, at, *exported)
        assert changes.read == len(exported) == changes.new + changes.changed + changes.unchanged
        assert take(view, at, *exported).rows == ()

    for at, hosts in steps:
        expected = {**hosts, **others}
        assert flags(view.at(at)) == flags({h: endpoint(h, **d) for h, d in expected.items()})


# Downtimes


def intervals(view: View) -> dict[str, tuple[str, str]]:
    return {row["downtimeId"]: (row["startTime"], row["endTime"]) for row in view.rows.values()}


def test_vanished_downtimes_of_the_window_are_cancelled_ended_or_kept_by_their_time() -> None:
    view = View(DOWNTIME)
    stored = {
        "past": (DAY1, DAY2),
        "running": (DAY1, DAY4),
        "coming": (DAY4, NOW),
        "at the end": ("2026-11-30T23:59:59Z", "2026-12-02T00:00:00Z"),
        "after the window": ("2026-12-01T00:00:00Z", "2026-12-02T00:00:00Z"),
    }
    listed = downtime("listed")
    take(view, DAY1, *(downtime(name, *times) for name, times in stored.items()), listed)

    changes = take(view, DAY3, listed, accept_shrinking=False)

    assert counts(changes) == (0, 0, 3, 1, 0)
    ended = {"running": (DAY1, DAY3), "coming": (DAY4, DAY4), "listed": (DAY1, DAY2)}
    ended["at the end"] = ("2026-11-30T23:59:59Z", "2026-11-30T23:59:59Z")
    assert intervals(view) == {**stored, **ended}
    assert take(view, DAY4, listed).rows == ()
    with pytest.raises(BadInput, match="no downtimes, but 1 from GOCDB"):
        take(view, DAY2, accept_shrinking=False)
    with pytest.raises(BadInput, match="must be newer"):
        take(view, DAY3, downtime("listed", end=DAY3))


@pytest.mark.parametrize(
    ("source", "announced", "kept"),
    [("message", DAY1, 0), ("message", DAY3, 1), (HAND, DAY1, 1), ("feed cric", DAY1, 0)],
)
def test_of_messages_and_gocdb_the_last_word_holds_and_that_by_hand_is_kept(
    source: str, announced: str, kept: int
) -> None:
    other: Row = {**downtime(), "timestamp": announced, "source": source}
    view = View(DOWNTIME, [other])

    changes = take(view, DAY2, downtime(end=DAY4))
    again = take(view, "2026-11-02T07:00:00Z", downtime(end=DAY4))

    assert (changes.kept, changes.changed) == (kept, 1 - kept)
    assert (list(view.rows.values()) == [other]) == bool(kept)
    assert (again.rows, again.kept, again.unchanged) == ((), kept, 1 - kept)
    missing = View(DOWNTIME, [{**other, "startTime": DAY4, "endTime": DAY5}])
    assert take(missing, DAY3, downtime("2G0")).ended == 0


def test_only_its_first_word_of_a_downtime_has_the_time_of_entry() -> None:
    view = View(DOWNTIME)
    entered = downtime(announcedAt="2026-10-01T00:00:00Z")

    rows = [
        *take(view, DAY1, entered).rows,
        *take(view, DAY2, {**entered, "endTime": DAY4}).rows,
        *take(view, DAY3, downtime("2G0"), {**entered, "endTime": DAY4}).rows,
    ]

    assert [row["announcedAt"] for row in rows] == ["2026-10-01T00:00:00Z", DAY2, DAY3]


downtimes = st.dictionaries(
    st.sampled_from(["1G0", "2G0", "3G0"]),
    st.tuples(st.integers(0, 200), st.integers(0, 100)),
    min_size=1,
)


@given(st.lists(downtimes, max_size=6))
def test_future_downtimes_match_each_snapshot(
    snapshots: Sequence[Mapping[str, tuple[int, int]]],
) -> None:
    view = View(DOWNTIME)
    first = datetime(2026, 11, 2, tzinfo=UTC)

    for number, snapshot in enumerate(snapshots):
        at = format_time(first + timedelta(hours=24 * number))
        exported = {
            downtime_id: (
                format_time(first + timedelta(hours=start)),
                format_time(first + timedelta(hours=start + hours)),
            )
            for downtime_id, (start, hours) in snapshot.items()
        }
        rows = [downtime(downtime_id, *interval) for downtime_id, interval in exported.items()]
        take(view, at, *rows)
        assert take(view, at, *rows).rows == ()
        stored = intervals(view)
        assert {known: stored[known] for known in exported} == exported
        assert all(stored[gone][1] <= max(at, stored[gone][0]) for gone in stored.keys() - exported)
