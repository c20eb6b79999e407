"""The tables of single brokers: which credentials, headers and destinations apply where."""

from __future__ import annotations

from pathlib import Path

import pytest

from sam_pipeline.publisher import settings
from sam_pipeline.publisher.brokers.tokens import door_token, token_for
from sam_pipeline.publisher.brokers.transport import kind_of
from sam_pipeline.publisher.delivery.publication import publish
from sam_pipeline.publisher.delivery.route import credentials_of
from sam_pipeline.publisher.settings import BrokerTable, PublisherConfig, load_config
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker import SCHEMES, parse_broker
from sam_pipeline.schema.net.deadline import Deadline
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.stand_in import HOST
from tests.support.invoke import invoke
from tests.support.publishing import RESULT, TOPIC, messages, secret

CREDENTIALS = PublisherConfig.CREDENTIALS
CHECK = ("check", "--connect", "--destination")
SECTION, ENVIRONMENT = "canary-of-the-section", "canary-of-the-environment"


@pytest.fixture(autouse=True)
def secrets_of_the_section(own_surroundings: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PASSWORD", "TOKEN", "PROXY_PASSWORD"):
        monkeypatch.setenv(f"SAM_PUBLISHER_{name}", ENVIRONMENT)
    monkeypatch.setenv("BEARER_TOKEN", ENVIRONMENT)


def table(url: str, *lines: str) -> str:
    return "\n".join(["[[publisher.broker]]", f'url = "{url}"', *lines, ""])


def loaded(text: str) -> PublisherConfig:
    Path("sam.toml").write_text(f"[publisher]\n{text}")
    return load_config(None, {})


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(text)
    return [problem.removeprefix(f"{Path.cwd()}/") for problem in caught.value.problems]


@pytest.mark.parametrize("own", CREDENTIALS)
@pytest.mark.parametrize("scheme", [scheme for scheme, kind in SCHEMES.items() if kind.port])
def test_another_owner_never_gets_our_credentials(tmp_path: Path, own: str, scheme: str) -> None:
    path = secret(tmp_path / "of-the-section", SECTION)
    mine = dict.fromkeys({*CREDENTIALS} - {"user"}, path)
    url = f"{scheme}://other.example.org{SCHEMES[scheme].path}"
    theirs = BrokerTable(**{"url": url, own: "" if own == "user" else tmp_path / "theirs"})
    (target,) = PublisherConfig(
        brokers=(url, url), user="sam", **mine, broker=(theirs,), insecure=True
    ).targets

    files = target.tls_files
    used = (target.password.file, target.token.file, files.certificate_file, files.key_file)
    assert {*used} - {None} <= {tmp_path / "theirs"}
    assert target.login() == (None, None)
    if own != "token_file":
        assert (token_for(target), door_token(target)) == (None, None)
    assert {SECTION, ENVIRONMENT}.isdisjoint(credentials_of(target).split("'"))


def test_a_table_without_credentials_uses_those_of_the_section_unless_its_url_has_a_user() -> None:
    without, own = "stomp+ssl://b.example.org", "stomp+ssl://bob@c.example.org"
    config = loaded(f'user = "sam"\n{table(without)}{table(own)}')

    logins = [target.login() for target in config.targets]
    assert logins == [("sam", ENVIRONMENT), ("bob", None)]
    assert [token_for(target) for target in config.targets] == [ENVIRONMENT, None]


def test_the_brokers_are_those_of_the_list_then_those_of_the_tables() -> None:
    listed = ("stomp://a.example.org", "stomp://b.example.org:61613")
    config = loaded(f"brokers = {[*listed]}\n{table('stomp://c.example.org')}{table(listed[1])}")

    assert [target.broker.host[0] for target in config.targets] == ["a", "b", "c"]
    (only,) = load_config(None, {"brokers": listed[:1]}).targets
    assert only.broker.host[0] == "a"


def test_each_broker_has_its_own_trust_and_proxy_or_that_of_the_section(tmp_path: Path) -> None:
    ours, theirs = secret(tmp_path / "ours.pem"), secret(tmp_path / "theirs.pem")
    config = loaded(
        f'ca_file = "{ours}"\ncertificate_file = "{ours}"\nproxy = "http://sam@proxy:3128"\n'
        + table("stomp+ssl://a", f'ca_file = "{theirs}"', 'proxy = "http://bob@their-proxy:3128"')
        + table("stomp+ssl://b", f'certificate_file = "{theirs}"')
        + table("stomp+ssl://c", 'proxy = "none"')
    )

    a, b, c = config.targets
    assert a.tls_files[:2] == (theirs, ours)
    assert b.tls_files[:2] == (ours, theirs)
    of_a, of_b = a.find_proxy(), b.find_proxy()
    assert of_a is not None and of_b is not None and c.find_proxy() is None
    # The other proxy never gets the password of the section's.
    assert (of_a.host, of_a.user, of_a.password) == ("their-proxy", "bob", None)
    assert "[[publisher.broker]] proxy" in str(of_a)
    assert (of_b.user, of_b.password) == ("sam", ENVIRONMENT)


def test_the_virtual_host_and_the_login_of_a_table_are_sent_to_its_broker(tmp_path: Path) -> None:
    own = secret(tmp_path / "own", "of-the-table")
    lines = ('vhost = "monitoring"', 'user = "bob"', f'password_file = "{own}"')
    with FakeBroker() as one, FakeBroker() as other:
        config = loaded(f'user = "sam"\nbrokers = ["{one.url}"]\n' + table(other.url, *lines))
        for target in config.targets:
            at_home = target._replace(ip=HOST)
            kind_of(target.broker)(at_home, Deadline.after(30)).close()

    names = ("host", "login", "passcode")
    (ours,), (theirs,) = one.logins, other.logins
    assert [ours.headers[name] for name in names] == ["/", "sam", ENVIRONMENT]
    assert [theirs.headers[name] for name in names] == ["monitoring", "bob", "of-the-table"]


def test_a_message_goes_where_its_class_goes_at_the_broker_that_takes_it() -> None:
    with FakeBroker() as broker:
        lines = ('headers = { expires = "9" }', 'destinations = { METRICOUTPUT = "/topic/site" }')
        assert publish(messages(1, destination=TOPIC), loaded("")).spooled
        config = loaded(table(broker.url, *lines))
        sent = [*messages(1, destination=TOPIC), *messages(1, destination="/topic/elsewhere")]
        publication = publish(sent, config)
        for command in ((*RESULT, "--destination", "/topic/x"), (*CHECK, "/topic/y")):
            assert invoke("sam-publish", *command).code == 0
        shown = kind_of(parse_broker(broker.url)).preview(config.targets[0], sent[0])

    here, there = "/topic/site", "/topic/elsewhere"
    destinations = [frame.headers["destination"] for frame in broker.taken]
    assert destinations[:4] == [here, there, here, "/topic/x"]  # the third one was spooled
    assert {*destinations[4:]} == {"/topic/y"}
    assert {frame.headers["expires"] for frame in broker.taken} == {"9"}
    reported = [receipt.message.headers["destination"] for receipt in publication.receipts]
    assert (reported, publication.drained) == ([here, there], 1)
    assert b"\nexpires:9\n" in shown


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
    ("url", "line", "stem"),
    [
        ("sam+https://d.example.org", 'vhost = "x"', "vhost has no effect"),
        ("sam+https://d.example.org", 'user = "bob"', "user has no effect"),
        ("stomp://d.example.org", 'token_file = "file"', "token_file has no effect"),
        ("stomp://d.example.org", 'password_file = "file"', "password_file has no effect"),
        ("stomp://d.example.org", 'proxy_password_file = "file"', "has no effect: no proxy"),
        ("stomp://a.example.org", "", "appears twice"),
        ("stomp://bob@d.example.org", "", "would be sent in plain text"),
    ],
)
def test_keys_that_have_no_effect_at_a_broker_are_problems(url: str, line: str, stem: str) -> None:
    secret(Path("file"))

    (problem,) = problems_of(table("stomp://a.example.org") + table(url, line))

    assert stem in problem


def test_destinations_of_a_broker_and_signatures_exclude_each_other() -> None:
    key = f'signing_key_file = "{secret(Path("nagios1.pem"))}"\n'

    own = table("stomp://a.example.org", 'destinations = { metricOutput = "/topic/x" }')
    assert "a signature covers the destination" in problems_of(key + own)[0]


def test_the_spool_is_that_of_the_package_for_accounts_that_may_write_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (packaged := tmp_path / "packaged").mkdir()
    absent = loaded("")
    monkeypatch.setattr(settings, "PACKAGE_SPOOL", packaged)

    default, named = loaded(""), loaded('spool = "mine"')

    assert (absent.spool, absent.shares_spool) == (tmp_path / "state" / "spool", False)
    assert (default.spool, default.shares_spool) == (packaged, True)
    assert (named.spool, named.shares_spool) == (tmp_path / "mine", False)
