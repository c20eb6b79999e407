"""The file of a policy: all of its problems at once."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.holder import PolicyHolder
from sam_pipeline.schema.identity.identity import broker_identity
from sam_pipeline.schema.identity.keys import PublicKey
from sam_pipeline.schema.identity.policy import ENFORCE, OBSERVE, Policy
from sam_pipeline.schema.identity.policy_file import load_policy

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


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "publishers.toml"


def policy_of(file: Path, text: str) -> Policy:
    file.write_text(text)
    return load_policy(file)


def problems_of(file: Path, text: str) -> list[str]:
    """The problems without the path of the file."""
    with pytest.raises(ConfigError) as caught:
        policy_of(file, text)
    return [problem.replace(f"{file}:", "") for problem in caught.value.problems]


def test_a_policy_has_the_values_of_its_file(file: Path) -> None:
    policy = policy_of(file, COMPLETE)

    publisher, topology = policy.publishers
    assert policy.mode == ENFORCE
    assert publisher.identities[1] == "key:nagios-cern"
    assert publisher.signed
    assert publisher.monitoring_hosts == ("nagios1.cern.ch",)
    assert publisher.records_per_minute == 20_000
    assert publisher.until == date(2027, 6, 1)
    assert (topology.sites, topology.hosts, topology.monitoring_hosts) == ((), (), None)


def test_the_keys_of_a_publisher_have_the_name_of_its_identity(file: Path) -> None:
    policy = policy_of(file, COMPLETE)

    assert policy.keys == {"nagios-cern": (KEY_1, KEY_2)}


def test_a_file_without_publishers_allows_nothing(file: Path) -> None:
    policy = policy_of(file, f'mode = "{OBSERVE}"')

    assert policy.publisher_of("anonymous") is None


def test_all_problems_are_reported_at_once_with_line_and_nearest_name(file: Path) -> None:
    problems = problems_of(
        file,
        """mode = "enforced"
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
""",
    )

    lines = [problem.partition(":")[0] for problem in problems]
    assert sorted(lines, key=int) == ["1", "4", "4", "6", "7", "10", "11", "12", "13"]
    assert "did you mean sites?" in problems[0]
    assert "did you mean broker?" in problems[1]


@pytest.mark.parametrize(
    ("old", "new", "line", "key"),
    [
        ('"topology"', '"nagios-cern"', 16, "name"),
        ('"uid:1000"', '"broker:*/CN=nagios1.cern.ch,OU=computers"', 17, "is"),
        ('"uid:1000"]', f'"key:other"]\nkeys = ["{KEY_2}"]', 18, "keys"),
        ('"uid:1000"]', '"uid:1000"]\nsigned = true', 18, "signed"),
        ('"uid:1000"]', f'"uid:1000"]\nkeys = ["{PublicKey(b"3" * 32)}"]', 18, "keys"),
        ('"uid:1000"', '"key:other"', 17, "is"),
    ],
    ids=["name twice", "identity twice", "key twice", "no keys", "no key identity", "key alone"],
)
def test_publishers_that_do_not_fit_together_are_a_problem(
    file: Path, old: str, new: str, line: int, key: str
) -> None:
    [problem] = problems_of(file, COMPLETE.replace(old, new))

    assert problem.startswith(f"{line}: publisher[2] {key}: ")


def test_a_missing_file_is_a_problem(file: Path) -> None:
    with pytest.raises(ConfigError, match=str(file)):
        load_policy(file)


def test_an_operator_is_not_an_identity_of_a_policy(file: Path) -> None:
    [problem] = problems_of(file, COMPLETE.replace("uid:1000", "operator:root"))

    assert problem.startswith("17: ")


def test_the_present_policy_stays_while_the_file_has_problems(file: Path) -> None:
    file.write_text(COMPLETE)
    holder = PolicyHolder(file)
    before = holder.policy
    file.write_text("mode = 1")

    with pytest.raises(ConfigError):
        holder.read(file)

    assert holder.policy is before is not None


def test_without_a_file_there_is_no_policy() -> None:
    holder = PolicyHolder()

    holder.read(None)

    assert holder.policy is None
    assert holder.is_recorded


@pytest.mark.parametrize("removed", [False, True])
def test_a_policy_that_was_read_again_or_removed_is_to_be_recorded(
    file: Path, removed: bool
) -> None:
    file.write_text(COMPLETE)
    holder = PolicyHolder(file)
    at_start = holder.is_recorded

    holder.read(None if removed else file)

    assert (at_start, holder.is_recorded) == (True, False)


def test_the_example_knows_the_publisher_at_each_of_the_deployed_brokers() -> None:
    policy = load_policy(Path(__file__).parents[4] / "deploy" / "publishers.toml")
    users = (
        "CN=nagios1.example.org,OU=computers,O=Example",
        "/O=Example/OU=computers/CN=nagios1.example.org",
    )

    identities = [broker_identity("stomp+ssl://msg1.example.org:61614", user) for user in users]

    publishers = [policy.publisher_of(identity) for identity in identities]
    assert [publisher.name for publisher in publishers if publisher] == ["nagios-example"] * 2
