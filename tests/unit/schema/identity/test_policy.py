"""The rules of a policy: which identity may say what."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from typing import Any

import pytest

from sam_pipeline.schema.identity.policy import ENFORCE, Policy, PublisherRule, refusal

TODAY = date(2026, 11, 23)
RESULT = {
    "hostName": "ce1.cern.ch",
    "siteName": "CERN-PROD",
    "monitoringHost": "nagios1.cern.ch",
    "metricStatus": "CRITICAL",
}


def rule(**changes: Any) -> PublisherRule:
    values = {
        "name": "nagios-cern",
        "identities": ("broker:*/nagios1",),
        "classes": ("metricOutput", "serviceEndpoint", "downtime", "siteGroup"),
        "sites": ("CERN-*",),
        "hosts": ("*.cern.ch",),
    }
    return PublisherRule(**{**values, **changes})


def refused(
    publisher: PublisherRule | None,
    message_class: str = "metricOutput",
    sites: Collection[str] = ("CERN-PROD",),
    today: date = TODAY,
    **changes: str,
) -> str:
    """The key of the policy that the record violates; "" if it is allowed."""
    text = refusal(publisher, message_class, {**RESULT, **changes}, sites, today)
    return (text or "").partition(":")[0]


def test_what_the_policy_lists_is_allowed() -> None:
    assert refused(rule()) == ""


def test_an_identity_that_the_policy_does_not_know_may_say_nothing() -> None:
    assert refused(None)


@pytest.mark.parametrize(
    ("key", "value"),
    [("classes", ("downtime",)), ("sites", ()), ("sites", ("*-T2",)), ("monitoring_hosts", ())],
)
def test_nothing_that_a_rule_does_not_list_is_allowed(key: str, value: tuple[str, ...]) -> None:
    assert refused(rule(**{key: value})) == key


def test_classes_and_hosts_have_no_case_but_sites_have() -> None:
    assert refused(rule(classes=("METRICOUTPUT",))) == ""
    assert refused(rule(hosts=("*.CERN.ch",)), sites=()) == ""
    assert refused(rule(monitoring_hosts=("NAGIOS?.cern.ch",))) == ""
    assert refused(rule(sites=("cern-*",))) == "sites"


def test_the_site_of_a_result_is_that_of_the_topology_not_that_of_the_sender() -> None:
    assert refused(rule(), siteName="CERN-PROD", sites=["RAL-LCG2"]) == "sites"
    assert refused(rule(), siteName="RAL-LCG2", sites=["CERN-PROD"]) == ""


def test_all_sites_of_a_host_must_match() -> None:
    assert refused(rule(), sites=["CERN-PROD", "RAL-LCG2"]) == "sites"
    assert refused(rule(), sites=["CERN-PROD", "CERN-T2"]) == ""


def test_a_host_without_a_site_must_match_the_hosts() -> None:
    assert refused(rule(), sites=()) == ""
    assert refused(rule(), sites=(), hostName="ce1.ral.ac.uk") == "hosts"
    assert refused(rule(hosts=()), sites=()) == "hosts"


def test_the_hosts_do_not_matter_where_the_topology_knows_the_site() -> None:
    assert refused(rule(hosts=()), sites=["CERN-PROD"]) == ""


@pytest.mark.parametrize("message_class", ["serviceEndpoint", "downtime", "SERVICEENDPOINT"])
def test_both_the_named_site_and_those_of_the_host_must_match(message_class: str) -> None:
    assert refused(rule(), message_class) == ""
    assert refused(rule(), message_class, siteName="RAL-LCG2") == "sites"
    assert refused(rule(), message_class, sites=["RAL-LCG2"]) == "sites"


def test_a_record_without_a_host_is_judged_by_its_site() -> None:
    assert refused(rule(), "siteGroup", sites=(), hostName="") == ""
    assert refused(rule(), "siteGroup", sites=(), hostName="", siteName="RAL-LCG2") == "sites"


def test_a_limit_on_monitoring_hosts_requires_one_in_results_alone() -> None:
    limited = rule(monitoring_hosts=("nagios1.cern.ch",))

    assert refused(limited) == ""
    assert refused(limited, monitoringHost="nagios1.ral.ac.uk") == "monitoring_hosts"
    assert refused(limited, monitoringHost="") == "monitoring_hosts"
    assert refused(limited, "serviceEndpoint", monitoringHost="") == ""


def test_a_publisher_may_send_on_its_last_day_but_not_later() -> None:
    assert refused(rule(until=date(2026, 11, 23))) == ""
    assert refused(rule(until=date(2026, 11, 22))) == "until"


def test_a_refusal_names_the_value() -> None:
    text = refusal(rule(), "metricOutput", RESULT, ["RAL-LCG2"], TODAY)

    assert text is not None
    assert "RAL-LCG2" in text
    assert "ce1.cern.ch" in text
    assert "CERN-*" in text


def test_a_refusal_quotes_a_few_of_many_patterns() -> None:
    many = tuple(f"SITE-{number}" for number in range(1000))

    text = refusal(rule(sites=many), "metricOutput", RESULT, ["CERN-PROD"], TODAY)

    assert text is not None
    assert len(text) < 200


@pytest.mark.parametrize("key", ["hostName", "siteName", "monitoringHost"])
def test_a_refusal_quotes_the_beginning_of_a_long_value(key: str) -> None:
    row = {**RESULT, key: "x" * 100_000}

    text = refusal(rule(monitoring_hosts=("nagios1.cern.ch",)), "downtime", row, [], TODAY)

    assert text is not None
    assert len(text) < 200


def publisher_of(identity: str, *lists: tuple[str, ...]) -> str:
    """The number of the list of identities that has this one, "" if none has."""
    rules = [rule(name=str(number), identities=texts) for number, texts in enumerate(lists, 1)]
    publisher = Policy(ENFORCE, tuple(rules)).publisher_of(identity)
    return publisher.name if publisher else ""


@pytest.mark.parametrize(
    ("identity", "text"),
    [
        ("anonymous", "anonymous"),
        ("key:nagios1", "key:nagios1"),
        ("broker:stomp://mb1:61613/alice", "broker:*/alice"),
        ("broker:stomp://[::1]:61613/alice", "broker:stomp://[::1]:61613/*"),
        ("broker:stomp://[::1]:61613/alice", "broker:stomp://[::1]:61613/alice"),
        ("broker:stomp://mb1:61613/alice", "broker:*mb1*/al*"),
        ("broker:stomp://mb1:61613/C=CH, CN=a?b", "broker:*/C=CH, CN=a?b"),
        ("broker:stomp://mb1:61613/host/ce01://x", "broker:*/host/ce01://x"),
        ("broker:stomp://mb1:61613//DC=org/CN=alice", "broker:*//DC=org/CN=alice"),
        ("broker:stomp://mb1:61613/host/alice", "broker:*"),
        ("uid:1000", "uid:*"),
        ("token:nagios-a", "token:nagios-*"),
        ("cert:CN=ce1.example.org,O=Grid", "cert:CN=*.example.org,O=Grid"),
    ],
)
def test_an_identity_matches_its_own_text_and_a_star_for_any_characters(
    identity: str, text: str
) -> None:
    assert publisher_of(identity, ("key:other",), (text,)) == "2"


@pytest.mark.parametrize(
    ("identity", "text"),
    [
        ("broker:stomp://mb1:61613/alice", "broker:*/ALICE"),
        ("broker:stomp://mb1:61613/malice", "broker:*/alice"),
        ("broker:stomp://mb1:61613/alices", "broker:*/alice"),
        ("broker:stomp://[::1]:61613/axb", "broker:*/a?b"),
        ("broker:/alice", "broker:/*/alice"),
        ("broker:stomp://mb1:61613/mallory/alice", "broker:*/alice"),
        ("broker:stomp://mb1:61613/mallory/alice", "broker:stomp://*/alice"),
        ("broker:stomp://mb1:61613/CN=x/CN=alice,DC=org", "broker:*/CN=alice,DC=org"),
        ("anonymous", "uid:*"),
        ("cert:nagios-a", "token:nagios-a"),
        ("cert:CN=mallory\\,O=Grid,O=Other", "cert:CN=*,O=Grid"),
    ],
)
def test_an_identity_does_not_match_what_is_merely_similar(identity: str, text: str) -> None:
    assert publisher_of(identity, (text,)) == ""


def test_an_exact_identity_comes_before_patterns_and_these_in_the_order_of_the_file() -> None:
    lists = ("broker:*", "uid:1"), ("broker:*/alice",), ("broker:x/alice",)

    assert publisher_of("broker:x/alice", *lists) == "3"
    assert publisher_of("broker:y/alice", *lists) == "1"
    assert publisher_of("broker:y/alice", *reversed(lists)) == "2"
