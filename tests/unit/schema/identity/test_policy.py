"""Policies: which identity may send what, the problems of their file, and suggested ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.keys import PublicKey
from sam_pipeline.schema.identity.policy import (
    ENFORCE,
    OBSERVE,
    Policy,
    PublisherRule,
    load_policy,
    refusal,
)
from sam_pipeline.schema.identity.suggestion import Said, suggested_policy

TODAY = date(2026, 11, 23)
RESULT = {
    "hostName": "ce1.cern.ch",
    "siteName": "CERN-PROD",
    "monitoringHost": "nagios1.cern.ch",
    "metricStatus": "CRITICAL",
}
OUTSIDE = {"hostName": "ce1.ral.ac.uk"}
RAL = {"siteName": "RAL-LCG2"}


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
    **changes: str,
) -> str:
    """The key of the policy that the record violates; "" if it is allowed."""
    text = refusal(publisher, message_class, {**RESULT, **changes}, sites, TODAY)
    return (text or "").partition(":")[0]


LIMITED: dict[str, Any] = {"monitoring_hosts": ("nagios1.cern.ch",)}


@pytest.mark.parametrize(
    ("key", "rules", "said"),
    [
        ("", {}, {}),  # what it lists is allowed
        # Nothing that a rule does not list is allowed.
        ("classes", {"classes": ("downtime",)}, {}),
        ("sites", {"sites": ()}, {}),
        # Classes and hosts have no case, but sites have.
        ("", {"classes": ("METRICOUTPUT",)}, {}),
        ("", {"hosts": ("*.CERN.ch",)}, {"sites": ()}),
        ("sites", {"sites": ("cern-*",)}, {}),
        # The site of a result is that of the topology, not that of the sender; all must match.
        ("sites", {}, {"sites": ["RAL-LCG2"]}),
        ("", {}, {"sites": ["CERN-PROD"], **RAL}),
        ("sites", {}, {"sites": ["CERN-PROD", "RAL-LCG2"]}),
        # Where the topology knows no site, the host must match.
        ("hosts", {}, {"sites": (), **OUTSIDE}),
        ("hosts", {"hosts": ()}, {"sites": ()}),
        ("", {"hosts": ()}, {}),
        # Elsewhere both the named site and those of the host must match.
        ("", {}, {"message_class": "serviceEndpoint"}),
        ("sites", {}, {"message_class": "SERVICEENDPOINT", **RAL}),
        ("", {}, {"message_class": "siteGroup", "sites": (), "hostName": ""}),
        ("sites", {}, {"message_class": "siteGroup", "sites": (), "hostName": "", **RAL}),
        # A limit on monitoring hosts requires one, in results alone.
        ("", LIMITED, {}),
        ("monitoring_hosts", LIMITED, {"monitoringHost": "nagios1.ral.ac.uk"}),
        ("monitoring_hosts", LIMITED, {"monitoringHost": ""}),
        ("", LIMITED, {"monitoringHost": "", "message_class": "serviceEndpoint"}),
        ("", {"until": TODAY}, {}),
        ("until", {"until": date(2026, 11, 22)}, {}),
    ],
)
def test_each_key_of_a_rule_is_a_limit(
    key: str, rules: dict[str, Any], said: dict[str, Any]
) -> None:
    assert refused(rule(**rules), **said) == key
    assert refused(None)  # an unknown identity


def test_a_refusal_is_short_whatever_the_number_of_patterns_and_the_length_of_values() -> None:
    many = rule(sites=tuple(f"SITE-{number}" for number in range(1000)))
    assert 0 < len(refusal(many, "metricOutput", RESULT, ["CERN-PROD"], TODAY) or "") < 200
    for key in ("hostName", "siteName", "monitoringHost"):
        row = {**RESULT, key: "x" * 100_000}
        assert 0 < len(refusal(rule(**LIMITED), "downtime", row, [], TODAY) or "") < 200


def publisher_of(identity: str, *lists: tuple[str, ...]) -> str:
    """The number of the list of identities that has this one, "" if none has."""
    rules = [rule(name=str(number), identities=texts) for number, texts in enumerate(lists, 1)]
    return getattr(Policy(mode=ENFORCE, publishers=tuple(rules)).publisher_of(identity), "name", "")


MB1 = "broker:stomp://mb1:61613"
MATCHING = [
    *(("anonymous", "anonymous"), ("key:nagios1", "key:nagios1"), ("uid:1000", "uid:*")),
    ("broker:stomp://[::1]:61613/alice", "broker:stomp://[::1]:61613/*"),
    ("broker:stomp://[::1]:61613/alice", "broker:stomp://[::1]:61613/alice"),
    *((f"{MB1}/alice", "broker:*/alice"), (f"{MB1}/alice", "broker:*mb1*/al*")),
    (f"{MB1}/C=CH, CN=a?b", "broker:*/C=CH, CN=a?b"),
    (f"{MB1}/host/ce01://x", "broker:*/host/ce01://x"),
    (f"{MB1}//DC=org/CN=alice", "broker:*//DC=org/CN=alice"),
    *((f"{MB1}/host/alice", "broker:*"), ("token:nagios-a", "token:nagios-*")),
    ("cert:CN=ce1.example.org,O=Grid", "cert:CN=*.example.org,O=Grid"),
]
SIMILAR = [
    *((f"{MB1}/{user}", "broker:*/alice") for user in ("malice", "alices", "mallory/alice")),
    *((f"{MB1}/alice", "broker:*/ALICE"), (f"{MB1}/mallory/alice", "broker:stomp://*/alice")),
    *(("broker:stomp://[::1]:61613/axb", "broker:*/a?b"), ("broker:/alice", "broker:/*/alice")),
    (f"{MB1}/CN=x/CN=alice,DC=org", "broker:*/CN=alice,DC=org"),
    *(("anonymous", "uid:*"), ("cert:nagios-a", "token:nagios-a")),
    ("cert:CN=mallory\\,O=Grid,O=Other", "cert:CN=*,O=Grid"),
]


def test_an_identity_matches_its_own_text_and_a_star_but_not_what_is_merely_similar() -> None:
    matches = {case: publisher_of(case[0], ("key:other",), (case[1],)) for case in MATCHING}
    similar = {case: publisher_of(case[0], (case[1],)) for case in SIMILAR}

    assert matches == dict.fromkeys(MATCHING, "2")
    assert similar == dict.fromkeys(SIMILAR, "")
    # An exact identity comes before patterns, and these in the order of the file.
    lists = ("broker:*", "uid:1"), ("broker:*/alice",), ("broker:x/alice",)
    assert publisher_of("broker:x/alice", *lists) == "3"
    assert publisher_of("broker:y/alice", *lists) == "1"
    assert publisher_of("broker:y/alice", *reversed(lists)) == "2"


KEY_1, KEY_2 = PublicKey(b"1" * 32), PublicKey(b"2" * 32)
COMPLETE = f"""
mode = "enforce"
[[publisher]]
name = "nagios-cern"
is = ["broker:*/CN=nagios1.cern.ch,OU=computers", "key:nagios-cern"]
keys = ["{KEY_1}", "{KEY_2}"]
signed = true
classes = ["metricOutput"]
sites = ["CERN-*"]
hosts = ["*.cern.ch"]
monitoring_hosts = ["nagios1.cern.ch"]
records_per_minute = 20_000
dead_letters_per_hour = 1_000
until = 2027-06-01
[[publisher]]
name = "topology"
is = ["uid:1000"]
classes = ["serviceEndpoint"]
"""


def policy_of(file: Path, text: str) -> Policy:
    file.write_text(text)
    return load_policy(file)


def problems_of(file: Path, text: str) -> list[str]:
    """The problems without the path of the file."""
    with pytest.raises(ConfigError) as caught:
        policy_of(file, text)
    return [problem.replace(f"{file}:", "") for problem in caught.value.problems]


PROBLEMS = """mode = "enforced"
[[publisher]]
name = "a"
is = ["brocker:x", "key:a*"]
classes = ["metricOutput"]
site = ["A"]
records_per_minute = 0
[[publisher]]
name = "b"
is = []
keys = ["ed25519:short"]
classes = []
until = "soon"
"""


def test_all_problems_are_reported_at_once_with_line_and_nearest_name(file: Path) -> None:
    problems = problems_of(file, PROBLEMS)

    lines = [problem.partition(":")[0] for problem in problems]
    assert sorted(lines, key=int) == ["1", "4", "4", "6", "7", "10", "11", "12", "13"]
    assert "did you mean sites?" in problems[0] and "did you mean broker?" in problems[1]
    file.unlink()
    with pytest.raises(ConfigError, match=str(file)):
        load_policy(file)


KEY_3 = PublicKey(b"3" * 32)
MISFITS = {  # a change, and the place of its problem
    ('"topology"', '"nagios-cern"'): "16: publisher[2] name: ",
    ('"uid:1000"', '"broker:*/CN=nagios1.cern.ch,OU=computers"'): "17: publisher[2] is: ",
    ('"uid:1000"]', f'"key:other"]\nkeys = ["{KEY_2}"]'): "18: publisher[2] keys: ",
    ('"uid:1000"]', '"uid:1000"]\nsigned = true'): "18: publisher[2] signed: ",
    ('"uid:1000"]', f'"uid:1"]\nkeys = ["{KEY_3}"]'): "18: publisher[2] keys: ",
    ("uid:1000", "operator:root"): "17: ",
}


def test_publishers_must_fit_together(file: Path) -> None:
    for change, place in MISFITS.items():
        [problem] = problems_of(file, COMPLETE.replace(*change))
        assert problem.startswith(place)


@pytest.mark.parametrize(
    "subject",
    [
        "/C=EX/O=ExampleGrid/CN=Jo User",
        "C = EX, O = ExampleGrid, CN = Jo User",
        "CN=Jo User, O=ExampleGrid, C=EX",
        "C=EX,O=ExampleGrid,CN=Jo User",
    ],
)
def test_a_subject_that_never_matches_is_a_problem_with_the_form_to_write(
    file: Path, subject: str
) -> None:
    rule = 'mode = "enforce"\n[[publisher]]\nname = "jo"\nis = ["cert:{}"]\nclasses = ["*"]\n'

    [problem] = problems_of(file, rule.format(subject))

    assert "cert:CN=Jo User,O=ExampleGrid,C=EX" in problem
    file.write_text(rule.format("CN=Jo User,O=ExampleGrid,C=EX"))
    assert load_policy(file).publishers


NOW = datetime(2026, 11, 20, tzinfo=UTC)
RESULTS = Said(
    "uid:1000",
    "metricOutput",
    frozenset({"SITE-A"}),
    frozenset({"ce01.example.org", "new.example.org"}),
    frozenset({"new.example.org"}),
    frozenset({"nagios.example.org"}),
    10,
    NOW,
    NOW,
)
KEY = "ed25519:MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="
PRESENT = f"""
mode = "enforce"
[[publisher]]
name = "site-a"
is = ["key:a", "uid:1000"]
keys = ["{KEY}"]
signed = true
classes = ["*"]
sites = ["*"]
until = 2027-06-01
records_per_minute = 20_000
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policy") / "publishers.toml"


def suggested(file: Path, said: Iterable[Said], present: Policy | None = None) -> Policy:
    file.write_text("\n".join(suggested_policy(said, present)), encoding="utf-8")
    return load_policy(file)


def allows(
    policy: Policy, identity: str, message_class: str, sites: Iterable[str] = (), **row: str
) -> bool:
    publisher = policy.publisher_of(identity)
    return refusal(publisher, message_class, row, set(sites), NOW.date()) is None


OTHERS: tuple[dict[str, Any], ...] = (
    {"identity": "uid:1001"},
    {"message_class": "downtime"},
    {"sites": ["SITE-B"]},
    {"sites": [], "hostName": "ce01.example.org"},
    {"monitoringHost": "other.example.org"},
)


def test_a_suggested_policy_allows_the_received_records_and_nothing_else(file: Path) -> None:
    policy = suggested(file, [RESULTS])
    said: dict[str, Any] = {"identity": "uid:1000", "message_class": "metricOutput"}
    said |= {"hostName": "CE01.example.org", "monitoringHost": "nagios.example.org"}

    assert policy.mode == OBSERVE
    assert allows(policy, **said, sites=["SITE-A"])
    assert allows(policy, **{**said, "hostName": "new.example.org"}, sites=[])
    for change in OTHERS:
        assert not allows(policy, **{**said, "sites": ["SITE-A"], **change})


def test_a_publisher_of_the_present_policy_keeps_its_name_keys_and_limits(file: Path) -> None:
    file.write_text(PRESENT)
    present, signed = load_policy(file), replace(RESULTS, identity="key:a")

    [publisher] = suggested(file, [signed], present).publishers
    [unsigned_too] = suggested(file, [RESULTS, signed], present).publishers

    assert (publisher.name, publisher.identities) == ("site-a", ("key:a", "uid:1000"))
    assert (publisher.keys, publisher.signed) == ((KEY,), True)
    assert (publisher.records_per_minute, publisher.until) == (20_000, date(2027, 6, 1))
    assert publisher.sites == ("SITE-A",)
    assert not unsigned_too.signed  # signatures are not required


def test_operators_and_unknown_keys_get_no_publisher(file: Path) -> None:
    others = [replace(RESULTS, identity=text) for text in ("key:unknown", "operator:ada")]
    sites = frozenset(f"SITE-{number:03}" for number in range(100))

    policy = suggested(file, [*others, replace(RESULTS, sites=sites)])

    [publisher] = policy.publishers
    assert (publisher.name, publisher.sites) == ("uid:1000", tuple(sorted(sites)))
    assert '# "key:unknown"' in file.read_text()


@given(user=st.text(min_size=1), site=st.text(min_size=1), host=st.text(min_size=1))
def test_any_name_is_taken_literally(file: Path, user: str, site: str, host: str) -> None:
    identity, host = f"broker:stomp://b:1/{user}", host.lower()
    names: dict[str, Any] = {
        name: frozenset({host}) for name in ("hosts", "new_hosts", "monitoring_hosts")
    }
    policy = suggested(
        file, [replace(RESULTS, identity=identity, sites=frozenset({site}), **names)]
    )

    row = {"hostName": host, "monitoringHost": host}
    assert allows(policy, identity, "metricOutput", [site], **row)
    assert allows(policy, identity, "metricOutput", [], **row)
    assert not allows(policy, identity, "metricOutput", [f"{site}x"], **row)
