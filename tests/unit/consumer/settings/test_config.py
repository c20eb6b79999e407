"""The section `[consumer]` and its tables: their values, and all their problems at once."""

from __future__ import annotations

import argparse
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.consumer.settings.config import ConsumerConfig, examine_consumer, load_consumer
from sam_pipeline.consumer.settings.tables import DoorConfig, SubscriptionConfig
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.messages.foreign import Stamp, make_stamp
from sam_pipeline.schema.net.broker import Broker, parse_broker
from sam_pipeline.schema.records.classes import BUILT_IN
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
LIMITS = ("max_message_bytes", "max_records", "max_age_days", "max_future_s")
SPOOL = '[consumer]\nbrokers = ["spool:///in"]\n'
NETWORK = '[consumer]\nname = "a"\nbrokers = ["stomp://a"]\n'
TO_X = '[[consumer.subscription]]\ndestination = "/topic/x"\n'
A = "stomp://a:61613"
DOOR = '[consumer]\nbrokers = ["listen+http://localhost"]\n'
MSG = "stomp://msg.example.org:61613"
TO_IN = TO_X.replace("/topic/x", "spool:///in")
SILENCE = f"{SPOOL}[[consumer.silence]]\n"
WRONG = """\
[consumer]
name = "site a"
brokers = ["stomp://a", "http://b"]
batchsize = 5
heart_beat = "0s"
password_file = "none"
[[consumer.subscription]]
destination = "grid.probe"
"""
WRONG_DOOR = f'{DOOR}[consumer.door]\nmax_connections = 0\nanswer_timeou = 1\ninsecure = "no"\n'


def args_of(directory: Path, text: str, instance: int | None = None) -> argparse.Namespace:
    for name, content in (("secret", "hush\n"), ("host.pem", "")):
        (directory / name).write_text(content)
        (directory / name).chmod(0o600)
    file = directory / "sam.toml"
    file.write_text(text)
    return argparse.Namespace(config=str(file), instance=instance)


def loaded(directory: Path, text: str) -> ConsumerConfig:
    return load_consumer(args_of(directory, text))


def problems_of(directory: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(directory, text)
    return "\n".join(caught.value.problems)


def problem_of(key: str, value: object) -> str | None:
    check = ConsumerConfig.KEYS[key].check
    return check(value) if check else None


def complete(*lines: str) -> str:
    """The complete section with further lines."""
    return COMPLETE.replace("\n[[", "\n".join([*lines, "[["]))


def test_a_complete_section_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = loaded(tmp_path, COMPLETE)

    assert config.name == "site-a"
    assert [*map(str, config.brokers)] == [MSG, "spool:///var/spool/sam-in"]
    subscription = SubscriptionConfig(
        destination="/topic/grid.probe.metricOutput", message_class="metricOutput"
    )
    assert config.subscription == (subscription,)
    assert config.password_file == tmp_path / "secret"

    monkeypatch.setenv("SAM_CONSUMER_BROKERS", "spool:///a,spool:///b")
    assert loaded(tmp_path, COMPLETE).broker_urls == ("spool:///a", "spool:///b")


def test_without_subscriptions_the_topics_of_the_built_in_classes_are_read(tmp_path: Path) -> None:
    config = loaded(tmp_path, NETWORK.replace('a"]', 'a", "spool:///in"]') + TO_IN)

    read = config.subscriptions_at(parse_broker("stomp://a"))
    assert "/topic/grid.probe.metricOutput" in {item.destination for item in read}
    assert [item.destination for item in read] == [
        f"/topic/grid.probe.{one.name}" for one in BUILT_IN.values()
    ]
    assert {item.message_class for item in read} == {one.name for one in BUILT_IN.values()}


def test_a_spool_or_a_door_needs_neither_name_nor_subscription(tmp_path: Path) -> None:
    spool, door = loaded(tmp_path, SPOOL), loaded(tmp_path, DOOR)

    assert (spool.batch_size, spool.metrics_address) == (2000, None)
    assert spool.relay_accounts == set()
    assert (door.door, door.network_brokers) == (DoorConfig(), [])
    assert [*map(str, door.doors)] == ["listen+http://localhost:8080"]
    assert door.door.admits_anonymous(parse_broker("listen+http://127.0.0.1:8080"))


@pytest.mark.parametrize(
    ("text", "stems"),
    [
        (WRONG, ["letters, digits", "http", "batch_size", "more than 0", "none", "/topic"]),
        ('[consumer]\nbrokers = ["stomp://a"]\n', ["name is missing"]),
        (NETWORK + TO_X + TO_X, ["appears twice"]),
        (NETWORK + TO_IN, ["spool:///in is not one of the brokers"]),
        (SPOOL + TO_IN + 'format = "xml"\n', ["wlcg or nstream"]),
        (SPOOL + TO_IN + 'rename = { a = "b", c = "B" }\n', ["'a' and 'c' both become"]),
        (SPOOL + TO_IN + 'rename = { a = "b", A = "c" }\n', ["'A' appears twice"]),
        (SPOOL + TO_IN + 'rename = { a = " " }\n', ["a name is empty"]),
        (SPOOL.replace('"]', '", "spool:///in?umask=007"]'), ["spool:///in appears twice"]),
        (WRONG_DOOR, ["sam.toml:4: [consumer.door] max_connections: expected more than 0"]),
        (WRONG_DOOR, ["answer_timeou (did you mean answer_timeout?)"]),
        (
            NETWORK + 'trusted_brokers = ["spool:///in"]\n' + TO_X,
            ["spool:///in is not one of the network"],
        ),
        (NETWORK + 'trusted_brokers = ["stomp://a1"]\n' + TO_X, ["did you mean stomp://a:61613?"]),
        (
            NETWORK + 'trusted_relays = ["broker:stomp://a:61613/b"]\n' + TO_X,
            ["trusted_relays: ", "no broker"],
        ),
        (SPOOL + 'trusted_relays = ["no one"]\n', ["'no one': no such account"]),
        (SPOOL + 'policy_file = "none.toml"\n', ["none.toml: no such file"]),
        (SPOOL + 'metrics_listen = "0.0.0.0:9464"\n', ["metrics_certificate_file"]),
        (SILENCE + 'after = "5min"\n', ["either class or site"]),
        (SILENCE + 'site = "A"\nclass = "x"\nafter = "5min"\n', ["either class or site"]),
        (SPOOL + "max_records = -1\n", ["more than 0"]),
        (SPOOL + 'max_age = "36526d"\n', ["1d to 36525d"]),
        (SPOOL + 'max_future = "0s"\n', ["1s to 366d"]),
    ],
)
def test_all_problems_are_reported_at_once(tmp_path: Path, text: str, stems: list[str]) -> None:
    problems = problems_of(tmp_path, text)

    assert [stem for stem in stems if stem not in problems] == [], problems
    if text.startswith(f"{SPOOL}max_"):
        with pytest.raises(ConfigError, match=stems[0]):
            examine_consumer(args_of(tmp_path, text)).only(*LIMITS).limits()


def test_further_keys_are_read(tmp_path: Path) -> None:
    (tmp_path / "publishers.toml").touch()
    relay = f"broker:{MSG}/bridge"
    keys = (
        *(
            'trusted_brokers = ["stomp://msg.example.org"]',
            f'trusted_relays = ["{relay}", "root", "40001"]',
        ),
        *('policy_file = "publishers.toml"', 'metrics_listen = "0.0.0.0:9464"'),
        *("metrics_insecure = true", "max_message_bytes = 1", "max_records = 2"),
        *('max_age = "3d"', 'max_future = "4s"'),
    )
    tables = '[[consumer.silence]]\nclass = "metricOutput"\nafter = "2.5min"\n'
    text = complete(*keys) + tables + "[consumer.door]\nmax_connections = 7\n"

    config = loaded(tmp_path, text)

    assert config.vouching_brokers == {MSG}
    assert (config.relay_users, config.relay_accounts) == ({relay}, {0, 40001})
    assert config.policy_file == tmp_path / "publishers.toml"
    assert config.metrics_address == Broker("listen+http", "0.0.0.0", 9464)
    limits = Limits(timedelta(days=3), timedelta(seconds=4), 1, 2)
    some = examine_consumer(args_of(tmp_path, text)).only(*LIMITS)
    assert config.limits() == some.limits() == limits
    [rule] = config.silence
    assert (rule.message_class, rule.site, rule.after_s) == ("metricOutput", "", 150)
    assert config.door.max_connections == 7


FOREIGN = """\
[consumer]
name = "site-a"
brokers = ["stomp://msg.example.org", "spool:///var/nstream?umask=007", "spool:///var/sam"]
[[consumer.subscription]]
destination = "/topic/own"
class = "own"
rename = { metric = "metricName", host = "hostName" }
[[consumer.subscription]]
destination = "spool:///var/nstream"
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
    assert (nstream.shared, sam.shared) == (True, False)


def test_asking_for_the_status_needs_no_secret_but_a_good_name(tmp_path: Path) -> None:
    text = COMPLETE.replace('"secret"', '"no-such-file"')

    for instance, name in ((None, "site-a"), (2, "site-a@2")):
        args = args_of(tmp_path, text)
        named = examine_consumer(args, instance).only("name", "broker_urls")
        assert named.process_name == name
    with pytest.raises(ConfigError, match="needs shared = true"):
        load_consumer(args_of(tmp_path, COMPLETE), 2)
    with pytest.raises(ConfigError, match="expected letters, digits"):
        args = args_of(tmp_path, text.replace("site-a", "site a"))
        examine_consumer(args).only("name", "broker_urls")


def test_a_login_in_plain_text_must_be_permitted(tmp_path: Path) -> None:
    brokers = 'brokers = ["stomp+ssl://a@msg.example.org", "stomp://site-a@msg.example.org"]'
    section = f'[consumer]\nname = "site-a"\n{brokers}\n'

    problems = problems_of(tmp_path, section + TO_X)
    permitted = loaded(tmp_path, f"{section}insecure = true\n{TO_X}")

    assert problems.count(f"{MSG}: the password of site-a would") == 1
    assert len(permitted.brokers) == 2


LOCAL, OPEN = "listen+http://127.0.0.1:8080", "listen+http://0.0.0.0:8080"
SECURE = "listen+https://0.0.0.0:8443"
TOKENS, CERTIFICATE = 'tokens_file = "tokens"\n', 'certificate_file = "host.pem"\n'


@pytest.mark.parametrize(
    ("url", "door", "stem"),
    [
        (LOCAL, "", ""),
        (LOCAL, 'client_ca_file = "host.pem"\nrequire_identity = true', "nobody could send"),
        (OPEN, TOKENS, "insecure = true"),  # plain HTTP beyond this machine is a decision
        (OPEN, f"{TOKENS}insecure = true", ""),
        (SECURE, TOKENS, "certificate_file"),
        (SECURE, CERTIFICATE, "nobody could send"),
        (SECURE, CERTIFICATE + TOKENS, ""),
        (SECURE, f'{CERTIFICATE}client_ca_file = "host.pem"', ""),
        (SECURE, f"{CERTIFICATE}require_identity = false", ""),
    ],
)
def test_a_door_is_passable_or_a_problem(tmp_path: Path, url: str, door: str, stem: str) -> None:
    text = f'[consumer]\nbrokers = ["{url}"]\n[consumer.door]\n{door}\n'
    if stem:
        assert stem in problems_of(tmp_path, text)
        return
    config = loaded(tmp_path, text)
    is_open = url == LOCAL or "require_identity = false" in door
    assert config.door.admits_anonymous(parse_broker(url)) == is_open
    # The file of tokens need not exist before the first one.
    tokens = tmp_path / "tokens" if TOKENS in door else None
    assert config.door.tokens_file == tokens
    if tokens:
        assert examine_consumer(args_of(tmp_path, text)).only("door").door == config.door


@pytest.mark.parametrize(
    ("fds", "is_ours", "expected"),
    [("2", True, 2), ("2", False, 0), ("-1", True, 0), ("x", True, 0)],
)
def test_sockets_of_systemd_are_those_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fds: str, is_ours: bool, expected: int
) -> None:
    monkeypatch.setenv("LISTEN_FDS", fds)
    monkeypatch.setenv("LISTEN_PID", str(os.getpid() if is_ours else os.getppid()))

    assert loaded(tmp_path, DOOR).inherited_sockets == expected


@pytest.mark.parametrize("text", ["127.0.0.1:9464", "0.0.0.0:1", "[::1]:65535", "localhost:9464"])
def test_an_address_of_metrics_has_a_host_and_a_port(text: str) -> None:
    host, _, port = text.rpartition(":")

    config = ConsumerConfig(metrics_listen=text)
    assert config.metrics_address == Broker("listen+http", host.strip("[]"), int(port))
    assert problem_of("metrics_listen", text) is None


@pytest.mark.parametrize(
    "text",
    ["9464", ":9464", "127.0.0.1:0", "127.0.0.1:65536", "::1:9464", "a:b", "http://127.0.0.1:9464"],
)
def test_any_other_address_is_a_problem_that_shows_an_example(text: str) -> None:
    assert "127.0.0.1:9464" in str(problem_of("metrics_listen", text))


@pytest.mark.parametrize("certificate", [None, Path("file")])
@pytest.mark.parametrize("token", [None, Path("file")])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "db.example.org", "127.3.2.1", "::1"])
def test_metrics_beyond_this_machine_need_tls_and_a_token(
    host: str, certificate: Path | None, token: Path | None
) -> None:
    config = ConsumerConfig(
        metrics_listen=Broker("listen+http", host, 1).netloc,
        metrics_certificate_file=certificate,
        metrics_token_file=token,
    )
    problems = [*config.problems()]

    is_local = host in ("127.3.2.1", "::1")
    assert len(problems) == (not is_local and not (certificate and token))
    for problem in problems:
        assert ("metrics_certificate_file" in problem) == (certificate is None)
        assert ("metrics_token_file" in problem) == (token is None)


@pytest.mark.parametrize(
    ("urls", "problem"),
    [
        (("spool:///var/spool/sam-in?umask=007",), None),
        (("stomp://bridge@msg1.example.org", "stomp+ssl://msg2.example.org"), None),
        (("spool:///a", "stomp://msg1.example.org"), "one spool"),
        (("stomp://msg1.example.org", "stomp://user@msg1.example.org:61613"), "appears twice"),
        (("listen+https://0.0.0.0:8443",), "stomp://HOST"),
        (("ams+https://a/v1/projects/p", "nonsense"), "nonsense"),
    ],
)
def test_a_relay_sends_to_one_spool_or_to_brokers(urls: tuple[str, ...], problem: str) -> None:
    found = problem_of("relay_to", urls)
    assert (problem in str(found)) if problem else found is None


ONE, OTHER = "stomp+ssl://msg1.example.org:61614", "stomp+ssl://msg2.example.org:61614"
METRICS, SITES = "/topic/grid.probe.metricOutput", "/topic/grid.probe.siteGroup"


@pytest.fixture(autouse=True)
def no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


def secret(directory: Path, text: str) -> str:
    (directory / text).touch(0o600)
    (directory / text).write_text(text)
    return str(directory / text)


def with_tables(
    directory: Path, *tables: dict[str, Any], to: tuple[str, ...] = (), **common: Any
) -> ConsumerConfig:
    keys = {"name": "site-a", "brokers": [ONE], **common}
    lines = ["[consumer]", *(f"{key} = {json.dumps(keys[key])}" for key in keys if keys[key])]
    for table in tables:
        lines += ["[[consumer.broker]]"]
        headers = table.pop("headers", {})
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
        lines += [f"headers.{json.dumps(key)} = {json.dumps(headers[key])}" for key in headers]
    for destination in (METRICS, SITES):
        lines += ["[[consumer.subscription]]", f'destination = "{destination}"']
    config = directory / "sam.toml"
    config.write_text("\n".join(lines))
    return load_consumer(argparse.Namespace(config=str(config), to=to))


def problems_with(directory: Path, *tables: dict[str, Any], **common: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        with_tables(directory, *tables, **common)
    return "\n".join(caught.value.problems)


def test_another_owner_never_gets_our_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAM_CONSUMER_PASSWORD", "of the section")
    ours = {"user": "common", "certificate_file": secret(tmp_path, "common.pem")}
    for credential in (
        {"user": "bridge"},
        {"certificate_file": secret(tmp_path, "own.pem")},
        {"url": OTHER.replace("//", "//bridge@")},
    ):
        config = with_tables(tmp_path, {"url": OTHER, **credential}, **ours, ca_file=str(tmp_path))
        other = config.brokers[1]

        assert str(other) == OTHER
        target = config.target_of(other)
        assert target.user in (None, "bridge")
        assert target.password.read() is None
        assert target.tls_files.certificate_file != tmp_path / "common.pem"
        assert target.tls_files.ca_file == tmp_path  # whom we trust is the same
        assert config.target_of(parse_broker(ONE)).password.read() == "of the section"


def test_a_table_without_credentials_uses_those_of_the_section(tmp_path: Path) -> None:
    own_ca = secret(tmp_path, "own-ca.pem")
    common = {"user": "common", "password_file": secret(tmp_path, "common-password")}

    config = with_tables(tmp_path, {"url": ONE, "vhost": "sam", "ca_file": own_ca}, **common)
    one = parse_broker(ONE)

    assert config.brokers == (one,)
    at_one, at_other = map(config.target_of, (one, parse_broker(OTHER)))
    assert at_one.login() == ("common", "common-password")
    assert at_one.tls_files.ca_file == Path(own_ca)
    assert (at_one.vhost, at_other.vhost) == ("sam", "/")
    assert config.target_of(parse_broker(ONE.replace("//", "//eve@"))).user == "eve"


def test_the_brokers_are_those_of_the_list_then_those_of_the_tables(tmp_path: Path) -> None:
    tables = [{"url": OTHER}, {"url": ONE}, {"url": "stomp://idle", "destinations": []}]

    assert [*map(str, with_tables(tmp_path, *tables).brokers)] == [ONE, OTHER]
    assert with_tables(tmp_path, {"url": OTHER}, to=(OTHER,)).brokers == (parse_broker(ONE),)


def test_a_table_chooses_the_subscriptions_of_its_broker(tmp_path: Path) -> None:
    config = with_tables(tmp_path, {"url": OTHER, "destinations": [SITES]})

    at_one, at_other = map(config.subscriptions_at, config.network_brokers)
    assert [item.destination for item in at_one] == [METRICS, SITES]
    assert [item.destination for item in at_other] == [SITES]


def test_a_proxy_gets_the_password_of_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAM_CONSUMER_PROXY_PASSWORD", "of the section")
    own = {"url": OTHER, "proxy": "http://me@their-proxy:3128"}

    config = with_tables(tmp_path, own, proxy="http://me@our-proxy:3128")
    ours, theirs = (config.target_of(broker).find_proxy() for broker in config.network_brokers)

    assert ours and (ours.host, ours.password) == ("our-proxy", "of the section")
    assert theirs and (theirs.host, theirs.password) == ("their-proxy", None)
    assert "[[consumer.broker]] proxy" in str(theirs)


@pytest.mark.parametrize(
    ("table", "stem"),
    [
        ({"url": "spool:///in"}, "expected stomp://"),
        ({"user": "x"}, "url is missing"),
        ({"url": "stomp://msg3.example.org", "user": "x"}, "plain text"),
        ({"url": OTHER, "proxy": "http://a:hidden@b"}, "use proxy_password_file"),
        ({"url": ONE, "destinations": []}, "its destinations are empty"),
        ({"url": OTHER, "destinations": [SITES + "s"]}, f"did you mean {SITES}"),
        ({"url": OTHER, "vhost": ""}, "the name of a virtual host"),
        ({"url": OTHER, "headers": {"Ack": "auto"}}, "Ack: the consumer sets"),
        ({"url": OTHER, "headers": {"prefetch-count": "9"}}, "use the key prefetch"),
        ({"url": OTHER, "headers": {"exclusive": "true"}}, "could be lost"),
        ({"url": OTHER, "headers": {"x-max-length": "many"}}, "expected a whole number"),
        ({"url": OTHER, "headers": {"selector": ""}}, "expected a name and a value"),
    ],
)
def test_a_bad_table_is_a_problem(tmp_path: Path, table: dict[str, Any], stem: str) -> None:
    problems = problems_with(tmp_path, table)

    assert stem in problems
    assert "hidden" not in problems
