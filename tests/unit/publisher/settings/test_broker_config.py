"""The tables of single brokers: which credentials, headers and destinations apply where."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.stomp.session import open_session
from sam_pipeline.publisher.brokers.transport import kind_of
from sam_pipeline.publisher.cli import main
from sam_pipeline.publisher.delivery.memory import Memory
from sam_pipeline.publisher.delivery.publish import publish
from sam_pipeline.publisher.settings.broker_config import BrokerTable
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.publisher.settings.load import load_config
from sam_pipeline.publisher.settings.secrets import CREDENTIALS
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker_url import SCHEMES, parse_broker
from sam_pipeline.schema.net.deadline import Deadline
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.http_stand_in import HttpStandIn, reply
from tests.support.brokers.stand_in import HOST
from tests.support.builders import metric_message

SECTION, ENVIRONMENT = "canary-of-the-section", "canary-of-the-environment"


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No configuration or proxy, and secrets of the section in the environment."""
    for name in os.environ:
        if name.startswith(("SAM_", "BEARER_TOKEN")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setenv("SAM_PUBLISHER_PASSWORD", ENVIRONMENT)
    monkeypatch.setenv("SAM_PUBLISHER_TOKEN", ENVIRONMENT)
    monkeypatch.setenv("SAM_PUBLISHER_PROXY_PASSWORD", ENVIRONMENT)
    monkeypatch.setenv("BEARER_TOKEN", ENVIRONMENT)
    monkeypatch.chdir(tmp_path)


def secret(path: Path, text: str = SECTION) -> Path:
    path.write_text(f"{text}\n")
    path.chmod(0o600)
    return path


def loaded(text: str) -> PublisherConfig:
    Path("sam.toml").write_text(f"[publisher]\n{text}")
    return load_config(None, {})


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(text)
    return [problem.removeprefix(f"{Path.cwd()}/") for problem in caught.value.problems]


@pytest.mark.parametrize("own", CREDENTIALS)
@pytest.mark.parametrize("scheme", [scheme for scheme, kind in SCHEMES.items() if kind.port])
def test_a_broker_of_another_owner_never_gets_our_credentials(
    tmp_path: Path, own: str, scheme: str
) -> None:
    path = secret(tmp_path / "of-the-section")
    mine = dict.fromkeys(CREDENTIALS.keys() - {"user"}, path)
    url = f"{scheme}://other.example.org{SCHEMES[scheme].path}"
    theirs = BrokerTable(url)._replace(**{own: "" if own == "user" else tmp_path / "theirs"})
    config = PublisherConfig((url,), user="sam", **mine, broker=(theirs,), insecure=True)
    broker = parse_broker(url)

    at = config.at(broker)
    assert {getattr(at, name) for name in CREDENTIALS} - {None, ""} <= {tmp_path / "theirs"}
    assert config.login(broker) == (None, None)
    if own != "token_file":
        assert (config.token(broker), config.door_token(broker)) == (None, None)
    assert {SECTION, ENVIRONMENT}.isdisjoint(config.credentials(broker).split("'"))


def test_a_user_in_the_url_of_a_table_is_a_credential_of_its_own() -> None:
    config = loaded('user = "sam"\n[[publisher.broker]]\nurl = "stomp+ssl://bob@b.example.org"\n')

    (broker,) = config.broker_list
    assert config.login(broker) == ("bob", None)


def test_a_table_without_credentials_uses_those_of_the_section() -> None:
    config = loaded(
        'user = "sam"\n[[publisher.broker]]\nurl = "stomp+ssl://b.example.org"\nvhost = "x"\n'
    )

    (broker,) = config.broker_list
    assert config.login(broker) == ("sam", ENVIRONMENT)
    assert config.token(broker) == ENVIRONMENT


def test_the_brokers_are_those_of_the_list_then_those_of_the_tables(tmp_path: Path) -> None:
    config = loaded(
        'brokers = ["stomp://a.example.org", "stomp://b.example.org:61613"]\n'
        '[[publisher.broker]]\nurl = "stomp://c.example.org"\n'
        '[[publisher.broker]]\nurl = "stomp://b.example.org"\n'
    )

    assert [broker.host[0] for broker in config.broker_list] == ["a", "b", "c"]
    (only,) = load_config(None, {"brokers": ("stomp://a.example.org",)}).broker_list
    assert only.host[0] == "a"


def test_each_broker_has_its_own_trust_and_falls_back_to_that_of_the_section(
    tmp_path: Path,
) -> None:
    ours, theirs = secret(tmp_path / "ours.pem"), secret(tmp_path / "theirs.pem")
    config = loaded(
        f'ca_file = "{ours}"\ncertificate_file = "{ours}"\n'
        f'[[publisher.broker]]\nurl = "stomp+ssl://a.example.org"\nca_file = "{theirs}"\n'
        f'[[publisher.broker]]\nurl = "stomp+ssl://b.example.org"\ncertificate_file = "{theirs}"\n'
    )

    a, b = config.broker_list
    assert config.tls_files(a)[:2] == (theirs, ours)
    assert config.tls_files(b)[:2] == (ours, theirs)


def test_the_proxy_of_a_broker_never_gets_the_password_of_the_other_proxy(tmp_path: Path) -> None:
    config = loaded(
        'proxy = "http://sam@proxy.example.org:3128"\n'
        '[[publisher.broker]]\nurl = "stomp://a.example.org"\n'
        'proxy = "http://bob@their-proxy.example.org:3128"\n'
        '[[publisher.broker]]\nurl = "stomp://b.example.org"\n'
        '[[publisher.broker]]\nurl = "stomp://c.example.org"\nproxy = "none"\n'
    )

    theirs, ours, direct = map(config.proxy_for, config.broker_list)
    assert direct is None
    assert theirs is not None
    assert (theirs.host, theirs.user, theirs.password) == ("their-proxy.example.org", "bob", None)
    assert "[publisher.broker] proxy" in str(theirs)
    assert ours is not None
    assert (ours.user, ours.password) == ("sam", ENVIRONMENT)


def test_the_virtual_host_and_the_login_of_a_table_are_in_connect(tmp_path: Path) -> None:
    with FakeBroker() as one, FakeBroker() as other:
        own = secret(tmp_path / "own", "of-the-table")
        config = loaded(
            f'user = "sam"\nbrokers = ["{one.url}"]\n[[publisher.broker]]\nurl = "{other.url}"\n'
            f'vhost = "monitoring"\nuser = "bob"\npassword_file = "{own}"\n'
        )
        for broker in config.broker_list:
            address = BrokerAddress(broker, HOST)
            open_session(address, config, Deadline.after(5)).close()

    names = ("host", "login", "passcode")
    (ours,), (theirs,) = one.logins, other.logins
    assert [ours.headers[name] for name in names] == ["/", "sam", ENVIRONMENT]
    assert [theirs.headers[name] for name in names] == ["monitoring", "bob", "of-the-table"]


def test_a_message_goes_where_its_class_goes_at_the_broker_that_takes_it(tmp_path: Path) -> None:
    with FakeBroker() as broker:
        config = loaded(
            f'[[publisher.broker]]\nurl = "{broker.url}"\nheaders = {{ expires = "9" }}\n'
            'destinations = { METRICOUTPUT = "/topic/site.results" }\n'
        )
        default = metric_message(destination="/topic/grid.probe.metricOutput")
        own = metric_message(destination="/topic/somewhere.else")
        publication = publish([default, own], config)

    destinations = ["/topic/site.results", "/topic/somewhere.else"]
    assert [frame.headers["destination"] for frame in broker.taken] == destinations
    assert [frame.headers["expires"] for frame in broker.taken] == ["9", "9"]
    reported = [receipt.message.headers["destination"] for receipt in publication.receipts]
    assert reported == destinations


def test_a_spooled_message_goes_where_its_class_goes_at_the_broker_that_takes_it() -> None:
    with FakeBroker() as broker:
        table = (
            f'[[publisher.broker]]\nurl = "{broker.url}"\n'
            'destinations = { metricOutput = "/topic/site.results" }\n'
        )
        message = metric_message(destination="/topic/grid.probe.metricOutput")
        assert publish([message], loaded("")).spooled
        publication = publish([metric_message(destination="/topic/x")], loaded(table))

    assert publication.drained == 1
    destinations = [frame.headers["destination"] for frame in broker.taken]
    assert destinations == ["/topic/x", "/topic/site.results"]


def test_a_destination_of_the_command_line_is_that_at_every_broker(tmp_path: Path) -> None:
    with FakeBroker() as broker:
        Path("sam.toml").write_text(
            f'[publisher]\n[[publisher.broker]]\nurl = "{broker.url}"\n'
            'destinations = { metricOutput = "/topic/site.results" }\n'
        )
        earlier = metric_message(destination="/topic/grid.probe.metricOutput")
        publish([earlier], load_config(None, {})._replace(brokers=()))
        command = ["result", "--metric", "a.b", "--status", "OK", "--host", "h", "--flavour", "F"]
        assert main([*command, "--destination", "/topic/x"]) == 0
        assert main(["check", "--connect", "--destination", "/topic/y"]) == 0

    taken = {frame.headers["destination"] for frame in broker.taken}
    assert taken == {"/topic/x", "/topic/site.results", "/topic/y"}


def test_a_preview_has_the_headers_of_the_broker() -> None:
    config = loaded('[[publisher.broker]]\nurl = "stomp://b.example.org"\nheaders = { ttl = "9" }')
    (broker,) = config.broker_list

    frame = kind_of(broker).preview(broker, config, metric_message(destination="/queue/x"))

    assert b"\nttl:9\n" in frame


def test_a_login_of_a_table_is_used_over_http(tmp_path: Path) -> None:
    own = secret(tmp_path / "own", "of-the-table")
    with HttpStandIn(lambda request: reply(200, b"Message sent")) as server:
        config = loaded(
            f'user = "sam"\n[[publisher.broker]]\n'
            f'url = "activemq-rest+http://{HOST}:{server.port}/api/message"\n'
            f'user = "bob"\npassword_file = "{own}"\n'
        )
        (broker,) = config.broker_list
        kind = kind_of(broker)
        kind.connect(BrokerAddress(broker, HOST), config, Deadline.after(5)).close()

    assert {request.headers["authorization"] for request in server.asked} == {
        "Basic Ym9iOm9mLXRoZS10YWJsZQ=="
    }


def test_a_changed_password_of_one_broker_ends_its_rest_and_no_other(tmp_path: Path) -> None:
    one, other = secret(tmp_path / "one"), secret(tmp_path / "other")
    config = loaded(
        f'[[publisher.broker]]\nurl = "stomp+ssl://a.example.org"\nuser = "a"\n'
        f'password_file = "{one}"\n'
        f'[[publisher.broker]]\nurl = "stomp+ssl://b.example.org"\nuser = "b"\n'
        f'password_file = "{other}"\n'
    )
    memory = Memory(None, config.broker_list, credentials=config.credentials)
    addresses = [BrokerAddress(broker, HOST) for broker in config.broker_list]
    for address in addresses:
        memory.failed(address, "login failed")

    one.write_text("changed\n")

    assert [memory.rest_of(address) is None for address in addresses] == [True, False]


def test_all_problems_of_the_tables_are_reported_at_once() -> None:
    problems = problems_of(
        'brokers = ["stomp://a.example.org"]\n'
        '[[publisher.broker]]\nurl = "stomp://a.example.org"\nvhots = "x"\n'
        '[[publisher.broker]]\nurl = "listen+http://b.example.org"\n'
        '[[publisher.broker]]\nuser = "bob"\n'
        '[[publisher.broker]]\nurl = "stomp://c.example.org"\npassword_file = "gone"\n'
        'headers = { receipt = "1", samHost = "x", "a b" = "x", priority = "9" }\n'
        'destinations = { metricOutput = "metrics" }\nproxy = "https://p.example.org"\n'
    )

    stems = {
        ":5: [publisher] broker[1] unknown key vhots (did you mean vhost?)",
        ":7: [publisher] broker[2] url: listen+http://",
        ": [publisher] broker[3] url is missing",
        ":12: [publisher] broker[4] password_file: ",
        ":13: [publisher] broker[4] headers: receipt is set by sam-publish",
        ":13: [publisher] broker[4] headers: samHost is set by sam-publish",
        ":13: [publisher] broker[4] headers: 'a b' is not a header",
        ":14: [publisher] broker[4] destinations: metricOutput: 'metrics' is not a destination",
        ":15: [publisher] broker[4] proxy: unsupported scheme https",
    }
    assert {stem for stem in stems if any(stem in problem for problem in problems)} == stems
    assert len(problems) == len(stems)


@pytest.mark.parametrize(
    ("table", "stem"),
    [
        ('url = "sam+https://d.example.org"\nvhost = "x"', "vhost has no effect"),
        ('url = "sam+https://d.example.org"\nheaders = { a = "x" }', "headers has no effect"),
        ('url = "sam+https://d.example.org"\nuser = "bob"', "user has no effect"),
        ('url = "stomp://d.example.org"\ntoken_file = "file"', "token_file has no effect"),
        ('url = "stomp://d.example.org"\nkey_file = "file"', "key_file has no effect"),
        ('url = "stomp://d.example.org"\npassword_file = "file"', "password_file has no effect"),
        ('url = "stomp://d.example.org"\nproxy_password_file = "file"', "has no effect: no proxy"),
        ('url = "stomp://a.example.org"', "appears twice"),
        ('url = "stomp://bob@d.example.org"', "would be sent in plain text"),
    ],
)
def test_keys_that_have_no_effect_at_a_broker_are_problems(table: str, stem: str) -> None:
    secret(Path("file"))

    (problem,) = problems_of(
        f'[[publisher.broker]]\nurl = "stomp://a.example.org"\n[[publisher.broker]]\n{table}\n'
    )

    assert stem in problem


def test_destinations_of_a_broker_and_signatures_exclude_each_other() -> None:
    secret(Path("nagios1.pem"))

    problems = problems_of(
        'signing_key_file = "nagios1.pem"\n[[publisher.broker]]\nurl = "stomp://a.example.org"\n'
        'destinations = { metricOutput = "/topic/x" }\n'
    )

    assert "a signature covers the destination" in problems[0]
