"""Broker URLs, and which proxy is used for a broker, with what it may answer."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from typing import Any

import pytest

from sam_pipeline.publisher import NoBrokerTookIt, PublisherConfig, publish
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker import Broker, Target, chosen, is_exempt, parse_broker
from tests.support.brokers.proxy_server import ProxyServer
from tests.support.builders import metric_message

STOMP = "stomp://msg.example.org"
STOMP_TLS = "stomp+ssl://msg.example.org"
REST = "activemq-rest+http://msg.example.org"
REST_TLS = "activemq-rest+https://msg.example.org"
RABBIT = "rabbitmq-api+http://msg.example.org/%2F/amq.topic"
SECRET = "canary-of-the-proxy"
SOURCE = "([publisher] proxy)"

both_ways = pytest.mark.parametrize("url", [STOMP, REST], ids=["CONNECT", "absolute URI"])


@pytest.fixture(autouse=True)
def no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.lower().endswith("_proxy") or name == "REQUEST_METHOD":
            monkeypatch.delenv(name)


def proxy_of(url: str, key: str | None = None, **environ: str) -> str | None:
    """The host of the proxy to a broker."""
    proxy = chosen(parse_broker(url), key, "publisher", lambda: None, environ)
    return proxy.host if proxy else None


def failure_of(url: str, proxy: str | None, timeout_s: float = 5.0, **settings: Any) -> str:
    """Why a message did not reach the broker."""
    config = PublisherConfig(brokers=(url,), proxy=proxy, timeout_s=timeout_s, **settings)
    with pytest.raises(NoBrokerTookIt) as refusal:
        publish([metric_message()], config)
    (failure,) = refusal.value.publication.failures
    return str(failure.reason)


EITHER = "http_proxy HTTP_PROXY all_proxy ALL_PROXY"
ORDERS = {
    STOMP: EITHER,
    REST: EITHER,
    REST_TLS: "https_proxy HTTPS_PROXY all_proxy ALL_PROXY",
    STOMP_TLS: f"https_proxy HTTPS_PROXY {EITHER}",
}


@pytest.mark.parametrize("url", ORDERS)
def test_proxy_variables_are_read_in_order_with_lower_case_first(url: str) -> None:
    names = ORDERS[url].split()
    environ = {name: f"http://p{position}:3128" for position, name in enumerate(names)}
    for at in range(len(names)):
        assert proxy_of(url, **{name: environ[name] for name in names[at:]}) == f"p{at}"
    others = {"http_proxy", "https_proxy"} - {*names}
    assert proxy_of(url, **dict.fromkeys(others, "http://p")) is None


@pytest.mark.parametrize(
    ("proxy", "environ"),
    [
        ("p", "HTTP_PROXY=http://p"),
        # A CGI program gets a header of its client in HTTP_PROXY.
        (None, "HTTP_PROXY=http://p REQUEST_METHOD=GET"),
        ("p", "http_proxy=http://p REQUEST_METHOD=GET"),
        ("q", "HTTP_PROXY=http://p ALL_PROXY=q REQUEST_METHOD=GET"),
        (None, "http_proxy= HTTP_PROXY=http://p all_proxy=http://q"),
        ("p", "http_proxy=http://p no_proxy= NO_PROXY=*"),
        (None, "http_proxy=http://p NO_PROXY=*"),
        ("mine", "http_proxy=http://p no_proxy=* key=http://mine:8080"),
        (None, "http_proxy=http://p key=none"),
    ],
)
def test_key_no_proxy_and_empty_variables_decide(proxy: str | None, environ: str) -> None:
    assert proxy_of(REST, **dict(pair.split("=") for pair in environ.split())) == proxy


COVERED = {
    "msg.example.org": (
        "msg.example.org|MSG.Example.ORG|example.org|.example.org|*.example.org|*"
        "|other, msg.example.org|other msg.example.org|msg.example.org:61613"
    ),
    "MSG.example.org.": "msg.example.org",
    "example.org": ".example.org",
    "192.0.2.7": "192.0.2.7|192.0.2.7:61613|192.0.2.0/24|192.0.2.1/24",
    "2001:db8::7": "2001:db8::7|[2001:db8::7]:61613|[2001:db8:0::7]|2001:db8::/32|[2001:db8::]/32",
}
NOT_COVERED = {
    "msg.anexample.org": "example.org",
    "msg.example.org": (
        "msg.example|example.org:8080|*:61613|, ,|*.|192.0.2.0/24|msg.example.org:²"
    ),
    "192.0.2.7": "192.0.2.7:80|2.7|2001:db8::/32|192.0.2.0/99",
    "192.0.3.7": "192.0.2.0/24",
    "2001:db8::7": "[2001:db8::7]:80|192.0.2.0/24|[2001:db9::]/32",
}


def test_no_proxy_covers_names_ports_and_networks() -> None:
    for hosts, expected in ((COVERED, True), (NOT_COVERED, False)):
        for host, texts in hosts.items():
            for text in texts.split("|"):
                assert (is_exempt(host, 61613, text), text) == (expected, text)


UNUSABLE = """
https://u:{}@p:3128 socks5://u:{}@p:1080 http://u:{}@p:port http://u:{}@p:99999 http://u:{}@:3128
http://u:{}/x@p:3128 http://u:12/{}@p:3128 http://u:12#{}@p:3128 http://u:12?{}@p:3128
http://u:{}@[p:3128 http://u:{}\u2100@p:3128 u:12/{}@p
"""
"""Some look like host u, port 12."""


@pytest.mark.parametrize("url", UNUSABLE.split())
def test_an_unusable_proxy_is_not_shown(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("http_proxy", url.format(SECRET))
    with pytest.raises(ConfigError, match=r"^http_proxy: ") as refusal:
        Target(parse_broker(STOMP)).find_proxy()
    assert SECRET not in str(refusal.value)


@both_ways
@pytest.mark.parametrize(
    ("login", "wants", "stem"),
    [
        ("", "Basic", "it requires a login: http://USER:PASSWORD@… in the"),
        (f"u:{SECRET}", "Negotiate, basic realm=x", "it rejected the login of u"),
        ("u", "Negotiate", "it requires Negotiate authentication"),
    ],
)
def test_a_407_is_explained(
    monkeypatch: pytest.MonkeyPatch, url: str, login: str, wants: str, stem: str
) -> None:
    with ProxyServer("u", "other", wants=wants) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url_with(login) if login else proxy.url)
        failure = failure_of(url, None)

    assert failure.startswith(f"proxy {proxy.url} (http_proxy) answered 407 ")
    assert stem in failure
    for secret in (SECRET, b64encode(f"u:{SECRET}".encode()).decode()):
        assert secret not in failure


CUT_PAGE = b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\nContent-Length: 900\r\n\r\n<html"
AND_MORE = b"HTTP/1.1 200 OK\r\n\r\nCONNECTED\nversion:1.2\n\n\0"
ENDLESS = {"drips": True, "says": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1000}


GARBAGE = (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", b"\0" * 70_000, b"HTTP/1.1 2000 OK\r\n\r\n", b"HTTP/1.1")


@pytest.mark.parametrize(
    ("urls", "trouble", "begin", "stem"),
    [
        ((STOMP,), {"refuses": 403}, "PROXY answered 403 Refused", "no_proxy"),
        ((REST, RABBIT), {"refuses": 403}, "403 Refused", "PROXY"),  # perhaps of the broker
        *(
            ((STOMP, REST), trouble, "PROXY: no answer in time", "")
            for trouble in ({"mute": True}, {"drips": True, "refuses": 403}, ENDLESS)
        ),
        *(((STOMP, REST), {"says": says}, "PROXY: ", "") for says in (*GARBAGE, b"\r\n\r\n")),
        ((REST,), {"says": CUT_PAGE}, "PROXY answered 407 No: ", "it requires a login"),
        ((STOMP,), {"says": AND_MORE}, "PROXY: ", "more than its answer to CONNECT"),
    ],
)
def test_a_proxy_that_refuses_or_stalls_or_answers_garbage_is_named(
    urls: tuple[str, ...], trouble: dict[str, Any], begin: str, stem: str
) -> None:
    """It is a failure of this broker, never a rejection of the message."""
    for url in urls:
        with ProxyServer(**trouble) as proxy:
            slow = "no answer" in begin
            failure = failure_of(url, proxy.url, timeout_s=0.3 if slow else 5.0)

        assert failure.startswith(begin.replace("PROXY", f"proxy {proxy.url} {SOURCE}"))
        assert stem.replace("PROXY", f"proxy {proxy.url}") in failure
        assert failure.isprintable() and len(failure) < 500


MSG = "msg.example.org"
BROKERS = {
    f"stomp://{MSG}": Broker("stomp", MSG, 61613),
    "stomp://[2001:db8::1]:61000": Broker("stomp", "2001:db8::1", 61000),
    f"activemq-rest+http://{MSG}:8161/x": Broker("activemq-rest+http", MSG, 8161, "/x"),
    f"rabbitmq-api+http://{MSG}/%2F/x": Broker("rabbitmq-api+http", MSG, 15672, "/%2F/x"),
    f"ams+https://{MSG}/v1/projects/x/": Broker("ams+https", MSG, 443, "/v1/projects/x"),
    f"sam+https://{MSG}": Broker("sam+https", MSG, 8443),
    "listen+http://[::1]:8000": Broker("listen+http", "::1", 8000),
    "spool:///var/spool/sam%20in": Broker("spool", path="/var/spool/sam in"),
    "spool:///in%3F?umask=077": Broker("spool", path="/in?"),
    "spool:///in?umask=007": Broker("spool", path="/in", shared=True),
    f"stomp://me@{MSG}": Broker("stomp", MSG, 61613, user="me"),
}


@pytest.mark.parametrize("url", BROKERS)
def test_a_url_names_one_broker_and_is_shown_without_its_user(url: str) -> None:
    broker = parse_broker(url)

    assert broker == BROKERS[url]
    kind, _, transport = broker.scheme.partition("+")
    assert (broker.kind, broker.tls) == (kind, transport in ("ssl", "https"))
    assert "me@" not in str(broker) and "?umask" not in str(broker)
    assert parse_broker(str(broker))[:3] == broker[:3]


@pytest.mark.parametrize(
    ("url", "stem"),
    [
        ("http://msg.example.org", "begins with 'http' (expected one of stomp://, stomp+ssl://"),
        ("msg.example.org", "begins with 'msg.example.org'"),
        ("stomp://", "has no host"),
        ("stomp://msg.example.org/x", "nothing may follow the port"),
        ("stomp://msg.example.org:99999", "Port"),
        ("rabbitmq-api+http://msg.example.org/amq.topic", "expected /VHOST/EXCHANGE"),
        ("ams+https://msg.example.org", "expected /v1/projects/PROJECT"),
        ("ams+https://msg.example.org/v1/projects/sam?key=x", "query"),
        ("sam+https://nagios@door.example.org", "must not contain a user"),
        ("spool://var/spool", "expected three slashes"),
        ("spool:///", "has no directory"),
        ("spool:///in?umask=000", "expected nothing after the directory but ?umask=007"),
        ("spool:///in#1", "%23"),
        ("stomp://probe:canary@msg.example.org", "password"),
    ],
)
def test_a_bad_url_is_refused_with_a_reason(url: str, stem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(stem)) as refusal:
        parse_broker(url)
    assert "canary" not in str(refusal.value)


def problem_of_login(broker: Broker, user: str | None, insecure: bool) -> str | None:
    return Target(broker, user=broker.user or user, insecure=insecure).problem_of_login()


HEARD = """
stomp://sam@msg.example.org stomp://sam@127.example.org stomp://sam@localhost.example.org
activemq-rest+http://sam@10.0.0.1 rabbitmq-api+http://sam@[2001:db8::1]/%2F/amq.topic
"""


@pytest.mark.parametrize("url", HEARD.split())
def test_a_login_in_plain_text_on_another_machine_must_be_permitted(url: str) -> None:
    broker = parse_broker(url)
    anybody = broker._replace(user=None)
    scheme = url.partition(":")[0]
    secured = "stomp+ssl" if scheme == "stomp" else f"{scheme}s"

    problem = problem_of_login(broker, None, insecure=False) or ""

    assert f"use {secured}://, or set insecure = true" in problem
    assert problem_of_login(anybody, "other", insecure=False)
    assert problem_of_login(broker, None, insecure=True) is None
    assert problem_of_login(anybody, "", insecure=False) is None


UNHEARD = """
stomp://sam@localhost stomp://sam@127.0.0.2 stomp://sam@[::1] stomp+ssl://sam@msg.example.org
activemq-rest+https://sam@msg.example.org ams+https://msg.example.org/v1/projects/SAM
sam+http://door.example.org spool:///var/spool/sam
"""


def test_a_login_that_cannot_be_overheard_is_permitted() -> None:
    for url in UNHEARD.split():
        assert problem_of_login(parse_broker(url), "sam", insecure=False) is None
