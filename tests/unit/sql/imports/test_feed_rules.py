"""What is taken from a feed: sites, flavours, and how many odd elements may be left out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_rows import (
    DEFAULT_FLAVOURS,
    UNLISTED,
    FeedRows,
    FeedRules,
    LeftOut,
    SiteFacts,
    taken,
)
from sam_pipeline.sql.topology.view_rows import Row


def endpoint(site: str = "A", host: str = "h", flavour: str = "CE", **more: str) -> Row:
    return {"siteName": site, "hostName": host, "serviceFlavour": flavour, **more}


def odd(number: int) -> Sequence[LeftOut]:
    return [LeftOut(f"x.xml, line {n}", "hostName is odd") for n in range(number)]


# Flavours


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("org.opensciencegrid.htcondorce", "HTCONDOR-CE"),
        ("webdav", "WEBDAV"),
        ("XRootD", "XROOTD"),
        ("xrootd COMPONENT", "XROOTD"),
        ("SRM.nearline", "SRM.nearline"),
        ("eu.example.portal", "eu.example.portal"),
    ],
)
def test_a_flavour_has_one_name_whatever_the_feed_calls_it(theirs: str, ours: str) -> None:
    rows = FeedRows("f", [endpoint(flavour=theirs)], downtimes=[endpoint(flavour=theirs)])

    done = taken(rows, FeedRules())

    assert done.endpoints == done.downtimes == [endpoint(flavour=ours)]


def test_names_of_a_feed_extend_and_override_the_default_ones() -> None:
    rows = FeedRows(
        "f", [endpoint(flavour=name) for name in ("GLOBUS-gridftp", "eu.portal", "webdav")]
    )

    rules = FeedRules(flavours={"globus-GRIDFTP": "SRM", "EU.portal": "PORTAL"})

    flavours = [row["serviceFlavour"] for row in taken(rows, rules).endpoints or ()]
    assert flavours == ["SRM", "PORTAL", "WEBDAV"]


def test_our_own_names_of_flavours_stay_as_they_are() -> None:
    names = {name.lower(): ours for name, ours in DEFAULT_FLAVOURS.items()}

    assert all(names[ours.lower()] == ours for ours in DEFAULT_FLAVOURS.values())
    assert len(names) == len(DEFAULT_FLAVOURS)


def test_services_that_get_the_same_flavour_are_one_endpoint_and_one_downtime() -> None:
    names = ("SRMv1", "SRM")
    endpoints = [
        endpoint(flavour=name, monitored=flag) for name, flag in zip(names, "NY", strict=True)
    ]
    downtimes = [{**endpoint(flavour=name), "downtimeId": "1"} for name in names]

    done = taken(FeedRows("f", endpoints, downtimes=downtimes), FeedRules())

    assert done.endpoints == [endpoint(flavour="SRM", monitored="Y")]
    assert done.downtimes == [{**endpoint(flavour="SRM"), "downtimeId": "1"}]


# Sites


SITES = {
    "UKI-A": SiteFacts(["Certified"], ["Production"], ["EGI", "wlcg"], ["United Kingdom", "GB"]),
    "UKI-B": SiteFacts(["Suspended"], ["Production"], ["EGI"], ["United Kingdom", "GB"]),
    "CH-C": SiteFacts(["Certified"], ["Test"], [], ["Switzerland", "CH"]),
}


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (FeedRules(), "UKI-A UKI-B CH-C CLOSED"),
        (FeedRules(certification=["certified"]), "UKI-A CH-C"),
        (FeedRules(certification=["Certified"], infrastructure=["Production"]), "UKI-A"),
        (FeedRules(scope=["WLCG", "elixir"]), "UKI-A"),
        (FeedRules(countries=["ch", "France"]), "CH-C"),
        (FeedRules(sites=["uki-*", "closed"]), "UKI-A UKI-B CLOSED"),
        (FeedRules(sites=["UKI-?"], certification=["Suspended"]), "UKI-B"),
    ],
)
def test_rows_of_sites_that_meet_all_conditions_are_taken(
    conditions: FeedRules, expected: str
) -> None:
    names = [*SITES, "CLOSED"]
    rows = FeedRows(
        "f",
        [endpoint(site) for site in names],
        {"NGI": [{"siteName": site, "groupName": "N", "groupType": "NGI"} for site in names]},
        [{"siteName": site, "contact": "c"} for site in names],
        [{"downtimeId": "1", "hostName": "everywhere"}, *({"siteName": site} for site in names)],
        SITES,
    )

    done = taken(rows, conditions)

    left = {site for sites in done.filtered.values() for site in sites}
    for kind in (done.endpoints, done.groups["NGI"], done.contacts, (done.downtimes or ())[1:]):
        assert [row["siteName"] for row in kind or ()] == expected.split()
    assert (done.downtimes or ())[0]["hostName"] == "everywhere"
    assert left == set(names) - set(expected.split())
    assert not conditions.facts or "CLOSED" in done.filtered[UNLISTED] or conditions.sites


def test_a_condition_is_met_if_the_server_has_checked_it() -> None:
    rules = FeedRules(certification=["Certified"], countries=["CH"])
    rows = FeedRows("f", [endpoint("A")], sites={"A": SiteFacts(countries=["CH"])})

    assert taken(rows, rules, ["certification"]).endpoints == [endpoint("A")]
    with pytest.raises(BadInput, match="certification can't be applied"):
        taken(rows, rules)


def test_a_filter_without_a_list_of_sites_takes_nothing_and_says_so() -> None:
    rules = FeedRules(scope=["EGI"])

    with pytest.raises(BadInput, match="list of sites"):
        taken(FeedRows("f", [endpoint()]), rules)


# Odd elements


def test_an_odd_element_refuses_the_feed_unless_odd_ones_are_left_out() -> None:
    rows = FeedRows("f", [endpoint()], left_out=odd(1))

    with pytest.raises(BadInput, match=r"line 0: hostName is odd\n.*keep_going"):
        taken(rows, FeedRules())
    done = taken(rows, FeedRules(keep_going=True))

    assert (done.endpoints, done.left_out) == ([endpoint()], odd(1))


@pytest.mark.parametrize(
    ("good", "left_out", "is_refused"),
    [
        (10, 20, False),
        (10, 21, True),
        (1979, 21, False),
        (0, 1, False),
        (399, 21, False),
        (398, 21, True),
    ],
)
def test_more_odd_elements_than_both_limits_allow_refuse_the_feed(
    good: int, left_out: int, is_refused: bool
) -> None:
    endpoints = [endpoint(host=f"h{number}") for number in range(good)]
    rows = FeedRows("f", endpoints, left_out=odd(left_out))

    if is_refused:
        with pytest.raises(
            BadInput, match=f"{left_out} elements of {good + left_out} are too many"
        ):
            taken(rows, FeedRules(keep_going=True))
    else:
        assert len(taken(rows, FeedRules(keep_going=True)).endpoints or ()) == good
