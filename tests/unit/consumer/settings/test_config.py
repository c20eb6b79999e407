"""The section `[consumer]`."""

from __future__ import annotations

import argparse
import os
from datetime import timedelta
from pathlib import Path

import pytest

from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.door_config import DoorConfig
from sam_pipeline.consumer.settings.load import load_consumer, load_for_replay, load_identity
from sam_pipeline.consumer.settings.subscription_config import SubscriptionConfig
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.messages.foreign import Stamp, make_stamp
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.records.normalise import Limits

COMPLETE = """\
[consumer]
name = "site-a"
brokers = ["stomp://msg.example.org", "spool:///var/spool/sam-in"]
password_file = "secret"

[[consumer.subscription]]
destination = "/topic/grid.probe.metricOutput"
class = "metricOutput"
"""


def loaded(directory: Path, text: str) -> ConsumerConfig:
    (directory / "secret").write_text("hush\n")
    (directory / "secret").chmod(0o600)
    file = directory / "sam.toml"
    file.write_text(text)
    return load_consumer(argparse.Namespace(config=str(file)))


def problems_of(directory: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(directory, text)
    return "\n".join(caught.value.problems)


def test_an_http_door_needs_neither_name_nor_subscription(tmp_path: Path) -> None:
    config = loaded(tmp_path, '[consumer]\nbrokers = ["listen+http://localhost"]\n')

    assert config.door == DoorConfig()
    assert not config.reads_network
    assert [str(broker) for broker in config.doors] == ["listen+http://localhost:8080"]


def test_the_table_of_the_door_is_read_and_checked_like_the_section(tmp_path: Path) -> None:
    doors = '[consumer]\nbrokers = ["listen+http://localhost"]\n[consumer.door]\n'

    assert loaded(tmp_path, f"{doors}max_connections = 7\n").door.max_connections == 7
    problems = problems_of(
        tmp_path, f'{doors}max_connections = 0\nanswer_timeout = 1\ninsecure = "no"\n'
    )
    assert "sam.toml:4: [consumer.door] max_connections: expected more than 0" in problems
    assert "[consumer.door] unknown key answer_timeout (did you mean answer_timeout_s?)" in problems
    assert "sam.toml:6: [consumer.door] insecure: expected true or false" in problems
    assert "expected a table" in problems_of(tmp_path, "[consumer]\ndoor = 1\n")


def test_a_door_is_not_a_broker_that_vouches_or_has_subscriptions(tmp_path: Path) -> None:
    url = "listen+http://localhost:8080"
    with_door = COMPLETE.replace("brokers = [", f'brokers = ["{url}", ')

    assert loaded(tmp_path, with_door).network_brokers == [parse_broker("stomp://msg.example.org")]
    assert f"vouches: {url} is not one of" in problems_of(
        tmp_path, with_door.replace("[[", f'vouches = ["{url}"]\n[[', 1)
    )


def test_a_complete_section_is_read(tmp_path: Path) -> None:
    config = loaded(tmp_path, COMPLETE)

    assert config.name == "site-a"
    assert [str(broker) for broker in config.brokers] == [
        "stomp://msg.example.org:61613",
        "spool:///var/spool/sam-in",
    ]
    assert config.subscription == (
        SubscriptionConfig("/topic/grid.probe.metricOutput", "metricOutput"),
    )
    assert config.password_file == tmp_path / "secret"


def test_a_spool_needs_neither_name_nor_subscription(tmp_path: Path) -> None:
    config = loaded(tmp_path, '[consumer]\nbrokers = ["spool:///in"]\n')

    assert config.batch_size == 2000


def test_a_network_broker_needs_a_name_and_a_subscription(tmp_path: Path) -> None:
    problems = problems_of(tmp_path, '[consumer]\nbrokers = ["stomp://a"]\n')

    assert "name is missing" in problems
    assert "no [[consumer.subscription]]" in problems


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    problems = problems_of(
        tmp_path,
        """\
        [consumer]
        name = "site a"
        brokers = ["stomp://a", "http://b"]
        batchsize = 5
        batch_age_s = 0
        password_file = "no-such-file"
        [[consumer.subscription]]
        destination = "grid.probe"
        """,
    )

    for stem in ("letters, digits", "http", "batch_size", "more than 0", "no-such-file", "/topic"):
        assert stem in problems


def test_a_destination_given_twice_is_a_problem(tmp_path: Path) -> None:
    twice = COMPLETE + '[[consumer.subscription]]\ndestination = "/topic/grid.probe.metricOutput"\n'

    assert "appears twice" in problems_of(tmp_path, twice)


def test_the_environment_overrides_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAM_CONSUMER_NAME", "site-b")
    monkeypatch.setenv("SAM_CONSUMER_BROKERS", "spool:///a,spool:///b")

    config = loaded(tmp_path, COMPLETE)

    assert config.name == "site-b"
    assert config.broker_urls == ("spool:///a", "spool:///b")


FOREIGN = """\
[consumer]
name = "site-a"
brokers = ["stomp://msg.example.org", "spool:///var/spool/nstream", "spool:///var/spool/sam"]
[[consumer.subscription]]
destination = "/topic/own"
class = "own"
rename = { metric = "metricName", host = "hostName" }
[[consumer.subscription]]
destination = "spool:///var/spool/nstream"
format = "nstream"
[consumer.subscription.rename]
site = "siteName"
"""


def test_a_subscription_defines_the_stamp_of_a_broker_or_a_spool(tmp_path: Path) -> None:
    config = loaded(tmp_path, FOREIGN)

    [network] = config.network_subscriptions
    nstream, sam = config.brokers[1:]

    assert network.stamp == make_stamp("own", "wlcg", {"metric": "metricName", "host": "hostName"})
    assert config.stamp_of(nstream) == make_stamp("", "nstream", {"site": "siteName"})
    assert config.stamp_of(sam) == Stamp()


NO_PATH = "broker URL spool://in…: expected three slashes, spool:///path"
TWICE = "'Metric' appears twice (names match in any case)"


def test_problems_of_formats_and_names_are_reported_at_once_with_their_lines(
    tmp_path: Path,
) -> None:
    problems = problems_of(
        tmp_path,
        """\
[consumer]
brokers = ["spool:///in"]
[[consumer.subscription]]
destination = "spool:///in"
format = "xml"
[[consumer.subscription]]
destination = "spool://in"
rename = { metric = "metricName", name = "metricname", "" = "hostName", Metric = "x" }
[[consumer.subscription]]
destination = "/topic/x"
[consumer.subscription.rename]
site = " "
""",
    ).splitlines()

    reported = [line.removeprefix(f"{tmp_path}/sam.toml:").split(": ", 2) for line in problems]
    assert reported == [
        ["5", "[consumer] subscription[1] format", "expected one of wlcg, nstream, not 'xml'"],
        ["7", "[consumer] subscription[2] destination", NO_PATH],
        ["8", "[consumer] subscription[2] rename", "'metric' and 'name' both become 'metricname'"],
        ["8", "[consumer] subscription[2] rename", "'' = 'hostName': a name is empty"],
        ["8", "[consumer] subscription[2] rename", TWICE],
        ["11", "[consumer] subscription[3] rename", "'site' = ' ': a name is empty"],
    ]


def test_a_spool_that_is_not_a_broker_cannot_be_subscribed_to(tmp_path: Path) -> None:
    other = FOREIGN.replace(
        'destination = "spool:///var/spool/nstream"', 'destination = "spool:///x"'
    )

    assert "spool:///x is not one of the brokers" in problems_of(tmp_path, other)


def test_a_spool_is_the_same_with_and_without_its_umask(tmp_path: Path) -> None:
    config = loaded(tmp_path, FOREIGN.replace("/nstream", "/nstream?umask=007", 1))
    assert config.brokers[1].shared
    assert config.stamp_of(config.brokers[1]) == make_stamp("", "nstream", {"site": "siteName"})

    twice = '[consumer]\nbrokers = ["spool:///in", "spool:///in?umask=007"]\n'
    assert "a broker is listed twice" in problems_of(tmp_path, twice)


def test_a_spool_does_not_count_as_a_subscription_of_a_network_broker(tmp_path: Path) -> None:
    only = """[consumer]
name = "a"
brokers = ["stomp://a", "spool:///in"]
[[consumer.subscription]]
destination = "spool:///in"
"""

    assert "no [[consumer.subscription]]" in problems_of(tmp_path, only)


def test_the_limits_have_defaults(tmp_path: Path) -> None:
    assert loaded(tmp_path, COMPLETE).limits() == Limits()

    text = COMPLETE.replace(
        "[consumer]",
        "[consumer]\nmax_message_bytes = 1\nmax_records = 2\nmax_age_days = 3\nmax_future_s = 4",
    )
    expected = Limits(timedelta(days=3), timedelta(seconds=4), 1, 2)

    assert loaded(tmp_path, text).limits() == expected
    assert (
        load_for_replay(argparse.Namespace(config=str(tmp_path / "sam.toml"))).limits() == expected
    )


@pytest.mark.parametrize(
    ("line", "stem"),
    [
        ("max_message_bytes = 0", "more than 0"),
        ("max_records = -1", "more than 0"),
        ("max_age_days = 36526", "1 to 36525 days"),
        ("max_future_s = 0", "1 to 31622400 s"),
        ("max_future_s = 1e99", "whole number"),
    ],
)
def test_a_limit_out_of_range_is_a_problem(tmp_path: Path, line: str, stem: str) -> None:
    text = COMPLETE.replace("[consumer]", f"[consumer]\n{line}")

    assert stem in problems_of(tmp_path, text)
    with pytest.raises(ConfigError, match=stem):
        load_for_replay(argparse.Namespace(config=str(tmp_path / "sam.toml"))).limits()


def test_the_limits_need_no_broker(tmp_path: Path) -> None:
    file = tmp_path / "sam.toml"
    file.write_text("[consumer]\nmax_records = 7\n")

    assert load_for_replay(argparse.Namespace(config=str(file))).limits().max_records == 7


def test_the_example_in_the_page_on_records_is_a_valid_configuration(tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs" / "record.md").read_text()
    example = page.split("```toml\n")[1].split("```")[0]

    config = loaded(tmp_path, example)

    assert [subscription.format for subscription in config.subscription] == ["wlcg", "nstream"]


def test_asking_for_the_status_needs_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "sam.toml"
    file.write_text(COMPLETE)  # the file of the password does not exist

    for instance, name in ((None, "site-a"), (2, "site-a@2")):
        args = argparse.Namespace(config=str(file), instance=instance)
        assert load_identity(args).process_name == name
    with pytest.raises(ConfigError, match="password_file"):
        load_consumer(argparse.Namespace(config=str(file)))


def test_a_bad_name_is_reported_to_an_account_that_asks_for_the_status(tmp_path: Path) -> None:
    file = tmp_path / "sam.toml"
    file.write_text(COMPLETE.replace("site-a", "site a"))

    with pytest.raises(ConfigError, match="expected letters, digits"):
        load_identity(argparse.Namespace(config=str(file), instance=None))


@pytest.mark.parametrize(
    "login",
    [
        'user = "site-a"\nbrokers = ["stomp://msg.example.org"]',
        'brokers = ["stomp+ssl://a@msg.example.org", "stomp://site-a@msg.example.org"]',
    ],
)
def test_a_login_in_plain_text_must_be_permitted(tmp_path: Path, login: str) -> None:
    section = f'[consumer]\nname = "site-a"\n{login}\n'
    subscription = '[[consumer.subscription]]\ndestination = "/topic/x"\n'

    problems = problems_of(tmp_path, section + subscription)
    permitted = loaded(tmp_path, f"{section}insecure = true\n{subscription}")

    assert problems.count("stomp://msg.example.org:61613: the password of site-a would") == 1
    assert len(permitted.brokers) == len(permitted.broker_urls)


def test_a_relay_at_a_broker_is_one_for_whom_the_broker_vouches(tmp_path: Path) -> None:
    relay = "broker:stomp://msg.example.org:61613/bridge"
    keys = f'vouches = ["stomp://msg.example.org"]\nrelays = ["{relay}", "0"]\n[['

    config = loaded(tmp_path, COMPLETE.replace("\n[[", keys))
    problems = problems_of(tmp_path, COMPLETE.replace("\n[[", f'relays = ["{relay}"]\n[['))

    assert config.relay_users == {relay}
    assert 0 in config.relay_accounts
    assert f"relays: {relay}: no broker" in problems


def test_a_broker_that_vouches_is_one_of_the_network_brokers(tmp_path: Path) -> None:
    vouching = loaded(
        tmp_path, COMPLETE.replace("\n[[", 'vouches = ["stomp://msg.example.org"]\n[[')
    )
    spool = problems_of(
        tmp_path, COMPLETE.replace("\n[[", 'vouches = ["spool:///var/spool/sam-in"]\n[[')
    )
    similar = problems_of(
        tmp_path, COMPLETE.replace("\n[[", 'vouches = ["stomp://msg1.example.org"]\n[[')
    )

    assert vouching.vouching_brokers == {"stomp://msg.example.org:61613"}
    assert "vouches: spool:///var/spool/sam-in is not one of the network brokers" in spool
    assert "vouches: stomp://msg1.example.org is not one of the network brokers" in similar
    assert "did you mean stomp://msg.example.org:61613?" in similar


def test_a_relay_is_an_account_of_this_machine(tmp_path: Path) -> None:
    config = loaded(tmp_path, '[consumer]\nbrokers = ["spool:///in"]\nrelays = ["root", "40001"]\n')
    problems = problems_of(
        tmp_path, '[consumer]\nbrokers = ["spool:///in"]\nrelays = ["no one", "nobody else"]\n'
    )

    assert config.relay_accounts == {0, 40001, os.geteuid()}
    assert "'no one': no such account" in problems
    assert "'nobody else': no such account" in problems


def test_the_own_account_is_always_that_of_a_relay(tmp_path: Path) -> None:
    config = loaded(tmp_path, '[consumer]\nbrokers = ["spool:///in"]\n')

    assert config.relay_accounts == {os.geteuid()}


def test_the_policy_is_found_beside_the_configuration(tmp_path: Path) -> None:
    lines = '[consumer]\nbrokers = ["spool:///in"]\npublishers = "publishers.toml"\n'
    missing = problems_of(tmp_path, lines)
    (tmp_path / "publishers.toml").touch()

    config = loaded(tmp_path, lines)

    assert f"{tmp_path}/publishers.toml: no such file" in missing
    assert config.publishers == tmp_path / "publishers.toml"
