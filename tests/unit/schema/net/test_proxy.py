"""Which proxy is used for a broker, and connecting through it."""

from __future__ import annotations

import os
import socket
import ssl
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import trustme

from sam_pipeline.publisher import NoBrokerTookIt, PublisherConfig, publish
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.net.proxy import Proxy, chosen, is_exempt, parse_proxy
from tests.support.brokers.fake_broker import FakeBroker, black_hole, closed_port
from tests.support.brokers.http_stand_in import HttpStandIn, json_reply, reply
from tests.support.brokers.proxy_server import HOST, ProxyServer
from tests.support.builders import metric_message

STOMP = "stomp://msg.example.org"
STOMP_TLS = "stomp+ssl://msg.example.org"
REST = "activemq-rest+http://msg.example.org"
REST_TLS = "activemq-rest+https://msg.example.org"
NAME = "msg.invalid"  # no resolver knows it: only a proxy can
KNOWN = {NAME: HOST}
SECRET = "canary-of-the-proxy"

SENT = reply(200, b"Message sent", messageID="ID:1")


@pytest.fixture(autouse=True)
def no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.lower().endswith("_proxy") or name == "REQUEST_METHOD":
            monkeypatch.delenv(name)


def proxy_of(url: str, key: str | None = None, **environ: str) -> str | None:
    """The host of the proxy to a broker."""
    proxy = chosen(parse_broker(url), key, "publisher", lambda: None, environ)
    return proxy.host if proxy else None


def by_name(url: str) -> str:
    """The URL of the broker with a name that only the proxy can resolve."""
    return url.replace(HOST, NAME)


def rest_url(server: HttpStandIn) -> str:
    return f"activemq-rest+http://{NAME}:{server.port}/api/message"


def failure_of(url: str, proxy: str | None, timeout_s: float = 5.0, **settings: Any) -> str:
    """Why a message did not reach the broker."""
    config = PublisherConfig((url,), proxy=proxy, timeout_s=timeout_s, **settings)
    with pytest.raises(NoBrokerTookIt) as refusal:
        publish([metric_message()], config)
    (failure,) = refusal.value.publication.failures
    return str(failure.reason)


def secret_file(tmp_path: Path, text: str = SECRET, mode: int = 0o600) -> Path:
    file = tmp_path / "proxy-password"
    file.write_text(f"{text}\n")
    file.chmod(mode)
    return file


@pytest.mark.parametrize(
    ("url", "order"),
    [
        (STOMP, ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]),
        (REST, ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]),
        (REST_TLS, ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
        (
            STOMP_TLS,
            ["https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"],
        ),
    ],
)
def test_proxy_variables_are_read_in_order_with_lower_case_first(
    url: str, order: list[str]
) -> None:
    for at in range(len(order)):
        environ = {name: f"http://p{position}:3128" for position, name in enumerate(order)}

        proxy = proxy_of(url, **{name: environ[name] for name in order[at:]})

        assert proxy == f"p{at}"


def test_https_proxy_is_not_for_plain_http_nor_http_proxy_for_https() -> None:
    assert proxy_of(REST, https_proxy="http://p") is None
    assert proxy_of(REST_TLS, http_proxy="http://p") is None


def test_http_proxy_in_capitals_is_not_trusted_in_a_cgi_program() -> None:
    assert proxy_of(REST, HTTP_PROXY="http://p") == "p"
    assert proxy_of(REST, HTTP_PROXY="http://p", REQUEST_METHOD="GET") is None
    assert proxy_of(REST, http_proxy="http://p", REQUEST_METHOD="GET") == "p"
    assert proxy_of(REST, HTTP_PROXY="http://p", ALL_PROXY="q", REQUEST_METHOD="GET") == "q"


def test_a_variable_that_is_set_but_empty_means_no_proxy() -> None:
    assert proxy_of(REST, http_proxy="", HTTP_PROXY="http://p", all_proxy="http://q") is None


def test_the_key_wins_over_all_variables_and_none_means_no_proxy() -> None:
    variables = {"http_proxy": "http://p:3128", "no_proxy": "*"}

    assert proxy_of(STOMP, "http://mine:8080", **variables) == "mine"
    assert proxy_of(STOMP, "none", http_proxy="http://p:3128") is None


def test_no_proxy_in_lower_case_overrides_upper_case() -> None:
    assert proxy_of(STOMP, http_proxy="http://p", no_proxy="", NO_PROXY="*") == "p"
    assert proxy_of(STOMP, http_proxy="http://p", NO_PROXY="*") is None


@pytest.mark.parametrize(
    ("host", "no_proxy", "expected"),
    [
        ("msg.example.org", "msg.example.org", True),
        ("msg.example.org", "MSG.Example.ORG", True),
        ("MSG.example.org.", "msg.example.org", True),
        ("msg.example.org", "example.org", True),
        ("msg.example.org", ".example.org", True),
        ("msg.example.org", "*.example.org", True),
        ("example.org", ".example.org", True),
        ("msg.anexample.org", "example.org", False),
        ("msg.example.org", "msg.example", False),
        ("msg.example.org", "other, msg.example.org", True),
        ("msg.example.org", "other msg.example.org", True),
        ("msg.example.org", "msg.example.org:61613", True),
        ("msg.example.org", "example.org:8080", False),
        ("msg.example.org", "*", True),
        ("msg.example.org", "*:61613", False),
        ("msg.example.org", ", ,", False),
        ("msg.example.org", "*.", False),
        ("msg.example.org", "192.0.2.0/24", False),
        ("192.0.2.7", "192.0.2.7", True),
        ("192.0.2.7", "192.0.2.7:61613", True),
        ("192.0.2.7", "192.0.2.7:80", False),
        ("192.0.2.7", "192.0.2.0/24", True),
        ("192.0.2.7", "192.0.2.1/24", True),
        ("192.0.3.7", "192.0.2.0/24", False),
        ("192.0.2.7", "2.7", False),
        ("192.0.2.7", "2001:db8::/32", False),
        ("2001:db8::7", "2001:db8::7", True),
        ("2001:db8::7", "[2001:db8::7]:61613", True),
        ("2001:db8::7", "[2001:db8::7]:80", False),
        ("2001:db8::7", "[2001:db8:0::7]", True),
        ("2001:db8::7", "2001:db8::/32", True),
        ("2001:db8::7", "192.0.2.0/24", False),
        ("192.0.2.7", "192.0.2.0/99", False),
        ("msg.example.org", "msg.example.org:²", False),
    ],
)
def test_no_proxy_covers_names_domains_ports_addresses_and_networks(
    host: str, no_proxy: str, expected: bool
) -> None:
    assert is_exempt(host, 61613, no_proxy) is expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://p:3128", Proxy("p", 3128, "x")),
        ("p:3128", Proxy("p", 3128, "x")),
        (" http://p/ ", Proxy("p", 80, "x")),
        ("http://[2001:db8::1]:8080", Proxy("2001:db8::1", 8080, "x")),
        ("u:p%40ss@p:3128", Proxy("p", 3128, "x", "u", "p@ss")),
        ("http://u@p:3128", Proxy("p", 3128, "x", "u")),
    ],
)
def test_the_url_of_a_proxy_may_leave_out_scheme_and_port(url: str, expected: Proxy) -> None:
    assert parse_proxy(url, "x") == expected


@pytest.mark.parametrize(
    "url",
    [
        f"https://u:{SECRET}@p:3128",
        f"socks5://u:{SECRET}@p:1080",
        f"http://u:{SECRET}@p:port",
        f"http://u:{SECRET}@p:99999",
        f"http://u:{SECRET}@:3128",
        f"http://u:{SECRET}/x@p:3128",
        f"http://u:12/{SECRET}@p:3128",  # host u, port 12, if one does not look
        f"http://u:12#{SECRET}@p:3128",
        f"http://u:12?{SECRET}@p:3128",
        f"http://u:{SECRET}@[p:3128",
        f"http://u:{SECRET}\u2100@p:3128",
        f"u:12/{SECRET}@p",
    ],
)
def test_an_unusable_proxy_is_reported_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"^http_proxy: ") as refusal:
        parse_proxy(url, "http_proxy")

    assert SECRET not in str(refusal.value)


def test_the_text_of_a_proxy_shows_no_password() -> None:
    proxy = parse_proxy(f"http://u:{SECRET}@p:3128", "http_proxy")

    assert str(proxy) == "proxy http://p:3128 (http_proxy)"
    assert SECRET not in repr(proxy)
    assert str(parse_proxy("[2001:db8::1]", "x")) == "proxy http://[2001:db8::1]:80 (x)"


def test_an_invalid_proxy_variable_makes_brokers_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", f"socks5://u:{SECRET}@p:1080")

    with pytest.raises(BrokerUnavailable) as refusal:
        PublisherConfig().proxy_for(parse_broker(STOMP))

    assert str(refusal.value) == (
        "stomp://msg.example.org:61613: http_proxy: unsupported scheme socks5:// (expected http://)"
    )


def test_stomp_passes_a_proxy_with_connect() -> None:
    with FakeBroker() as broker, ProxyServer(hosts=KNOWN) as proxy:
        url = by_name(broker.url)
        publication = publish([metric_message()], PublisherConfig((url,), proxy=proxy.url))

    assert [str(receipt.address) for receipt in publication.receipts] == [url]
    assert proxy.asked == [f"CONNECT {url.removeprefix('stomp://')}"]
    assert proxy.headers[0]["host"] == url.removeprefix("stomp://")
    assert len(broker.taken) == 1


def test_rest_over_http_passes_a_proxy_with_absolute_uris() -> None:
    with HttpStandIn(lambda request: SENT) as server, ProxyServer(hosts=KNOWN) as proxy:
        config = PublisherConfig((rest_url(server),), proxy=proxy.url)
        publication = publish([metric_message(), metric_message()], config)

    first = server.asked[0]
    assert len(publication.receipts) == 2
    assert all(line.startswith(f"POST http://{NAME}:{server.port}/api/") for line in proxy.asked)
    assert first.target.startswith("/api/message/grid.probe.metricOutput?type=topic")
    assert first.headers["host"] == f"{NAME}:{server.port}"
    assert first.form["body"].startswith("hostName: ce01.example.org\n")


def test_stomp_over_tls_passes_a_proxy_and_the_name_in_the_url_is_checked(
    tmp_path: Path,
) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))

    with (
        FakeBroker(tls=context) as broker,
        ProxyServer(hosts={**KNOWN, "localhost": HOST}) as proxy,
    ):
        settings: dict[str, Any] = {"proxy": proxy.url, "ca_file": tmp_path / "ca.pem"}
        right, wrong = broker.url.replace(HOST, "localhost"), by_name(broker.url)
        publication = publish([metric_message()], PublisherConfig((right,), **settings))
        refusal = failure_of(wrong, **settings)

    assert len(publication.receipts) == len(broker.taken) == 1
    assert proxy.asked[0] == f"CONNECT {right.removeprefix('stomp+ssl://')}"
    assert f"its certificate is not for {NAME}" in refusal


@pytest.mark.parametrize("source", ["variable", "key and file"])
def test_a_proxy_gets_user_and_password(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str
) -> None:
    with (
        FakeBroker() as broker,
        HttpStandIn(lambda request: SENT) as server,
        ProxyServer("user", f"{SECRET}:@", hosts=KNOWN) as proxy,
    ):
        settings: dict[str, Any] = {}
        if source == "variable":
            monkeypatch.setenv("http_proxy", proxy.url_with(f"user:{SECRET}%3A%40"))
        else:
            file = secret_file(tmp_path, f"{SECRET}:@")
            settings = {"proxy": proxy.url_with("user"), "proxy_password_file": file}
        for url in (by_name(broker.url), rest_url(server)):
            publish([metric_message()], PublisherConfig((url,), **settings))

    assert len(broker.taken) == 1
    assert [request.form["body"] for request in server.asked[:1]] == [broker.taken[0].body.decode()]
    assert all("proxy-authorization" in headers for headers in proxy.headers)


def test_the_password_of_a_proxy_may_be_in_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAM_PUBLISHER_PROXY_PASSWORD", SECRET)
    with FakeBroker() as broker, ProxyServer("user", SECRET, hosts=KNOWN) as proxy:
        config = PublisherConfig((by_name(broker.url),), proxy=proxy.url_with("user"))
        publish([metric_message()], config)

    assert len(broker.taken) == 1
    assert config.has_secrets()["proxy password"]


def test_the_password_of_a_proxy_is_read_again_at_each_connect(tmp_path: Path) -> None:
    with FakeBroker() as broker, ProxyServer("user", "new", hosts=KNOWN) as proxy:
        file = secret_file(tmp_path, "old")
        settings: dict[str, Any] = {
            "proxy": proxy.url_with("user"),
            "proxy_password_file": file,
        }
        refusal = failure_of(by_name(broker.url), **settings)
        file.write_text("new\n")
        publish([metric_message()], PublisherConfig((by_name(broker.url),), **settings))

    assert "rejected the login of user" in refusal
    assert len(broker.taken) == 1


@pytest.mark.parametrize("way", ["CONNECT", "absolute URI"])
@pytest.mark.parametrize(
    ("login", "wants", "stem"),
    [
        ("", "Basic", "it requires a login: http://USER:PASSWORD@… in the"),
        (f"u:{SECRET}", "Basic", "it rejected the login of u"),
        (f"u:{SECRET}", "Negotiate, basic realm=x", "it rejected the login of u"),
        ("u", "Negotiate", "it requires Negotiate authentication"),
        ("u", "", "it rejected the login of u"),
    ],
)
def test_a_407_is_explained(
    monkeypatch: pytest.MonkeyPatch, way: str, login: str, wants: str, stem: str
) -> None:
    url = STOMP if way == "CONNECT" else REST
    with ProxyServer("u", "other", wants=wants) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url_with(login) if login else proxy.url)
        failure = failure_of(url, None)

    prefix = f"proxy {proxy.url} (http_proxy) answered 407 Proxy Authentication Required: "
    assert failure.startswith(prefix + stem)
    assert SECRET not in failure
    assert b64encode(f"u:{SECRET}".encode()).decode() not in failure


def test_a_proxy_that_refuses_connect_is_reported_with_the_alternatives() -> None:
    with ProxyServer(refuses=403) as proxy:
        failure = failure_of(STOMP, proxy.url)

    assert failure == (
        f"proxy {proxy.url} ([publisher] proxy) answered 403 Refused"
        ' (use no_proxy, or proxy = "none", to bypass it)'
    )


@pytest.mark.parametrize("url", [REST, "rabbitmq-api+http://msg.example.org/%2F/amq.topic"])
def test_a_403_through_a_proxy_does_not_reject_the_message(url: str) -> None:
    with ProxyServer(refuses=403) as proxy:
        failure = failure_of(url, proxy.url)

    assert failure.startswith("403 Refused")
    assert f"proxy {proxy.url}" in failure


def test_a_broker_that_the_proxy_cannot_reach_is_reported_as_502_of_the_proxy() -> None:
    port = closed_port()
    with ProxyServer(hosts=KNOWN) as proxy:
        by_connect = failure_of(f"stomp://{NAME}:{port}", proxy.url)
        by_uri = failure_of(f"activemq-rest+http://{NAME}:{port}", proxy.url)

    for failure in (by_connect, by_uri):
        assert failure.startswith(f"proxy {proxy.url} ([publisher] proxy) answered 502 Bad Gateway")


@pytest.mark.parametrize("url", [STOMP, REST])
@pytest.mark.parametrize(
    "trouble",
    [
        {"mute": True},
        {"drips": True, "refuses": 403},
        {"drips": True, "says": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1000},
    ],
    ids=["mute", "drips", "drips without end"],
)
def test_a_slow_proxy_is_named_at_the_deadline(url: str, trouble: dict[str, Any]) -> None:
    with ProxyServer(**trouble) as proxy:
        started = time.monotonic()
        failure = failure_of(url, proxy.url, timeout_s=0.3)
        took = time.monotonic() - started

    assert failure == f"proxy {proxy.url} ([publisher] proxy): no answer in time"
    assert 0.25 < took < 1.5


@pytest.mark.parametrize("url", [STOMP, REST])
def test_a_slow_proxy_uses_only_its_share_if_another_broker_follows(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("no_proxy", HOST)
    with FakeBroker() as broker, ProxyServer(mute=True) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        config = PublisherConfig((url, broker.url), timeout_s=0.6)
        publication = publish([metric_message()], config)

    assert len(publication.receipts) == len(broker.taken) == 1
    assert f"proxy {proxy.url}" in publication.failures[0].reason


@pytest.mark.parametrize("url", [STOMP, REST])
@pytest.mark.parametrize(
    "says",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"\0" * 70_000,
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1",
        b"\r\n\r\n",
    ],
    ids=["ssh", "flood of NUL", "status of four digits", "cut", "empty"],
)
def test_a_proxy_that_answers_garbage_is_named(url: str, says: bytes) -> None:
    with ProxyServer(says=says) as proxy:
        failure = failure_of(url, proxy.url)

    assert failure.startswith(f"proxy {proxy.url} ([publisher] proxy): ")
    assert failure.isprintable()
    assert len(failure) < 500


def test_a_refusal_with_a_truncated_page_is_reported() -> None:
    head = b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\nContent-Length: 900\r\n\r\n<html"
    with ProxyServer(says=head) as proxy:
        failure = failure_of(REST, proxy.url)

    assert failure.startswith(
        f"proxy {proxy.url} ([publisher] proxy) answered 407 No: it requires a"
    )


def test_bytes_after_the_answer_of_a_proxy_are_not_read_as_the_broker() -> None:
    with ProxyServer(says=b"HTTP/1.1 200 OK\r\n\r\nCONNECTED\nversion:1.2\n\n\0") as proxy:
        failure = failure_of(STOMP, proxy.url)

    assert failure.endswith("more than its answer to CONNECT")


@pytest.mark.parametrize("url", [STOMP, REST])
def test_a_proxy_that_is_down_is_named(url: str) -> None:
    proxy = f"http://{HOST}:{closed_port()}"

    failure = failure_of(url, proxy)

    assert failure == f"proxy {proxy} ([publisher] proxy): connection refused"


def test_connecting_to_an_unreachable_proxy_ends_at_the_deadline() -> None:
    with black_hole() as hole:
        started = time.monotonic()
        failure = failure_of(STOMP, hole.replace("stomp", "http"), timeout_s=0.3)
        took = time.monotonic() - started

    assert failure.endswith("no answer in time")
    assert took < 1.5


def test_a_proxy_whose_name_is_not_resolved_is_named() -> None:
    failure = failure_of(STOMP, "http://proxy.invalid:3128")

    assert failure.startswith(
        "proxy http://proxy.invalid:3128 ([publisher] proxy): name resolution failed: "
    )


def test_all_addresses_of_a_proxy_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeBroker() as broker, ProxyServer(hosts=KNOWN) as proxy:
        addresses = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, proxy.port))
            for ip in ("127.0.0.9", HOST)
        ]
        real = socket.getaddrinfo

        def answer(host: str, *rest: Any, **keywords: Any) -> Any:
            return addresses if host == "proxy.invalid" else real(host, *rest, **keywords)

        monkeypatch.setattr(socket, "getaddrinfo", answer)
        config = PublisherConfig((by_name(broker.url),), proxy=f"http://proxy.invalid:{proxy.port}")
        publication = publish([metric_message()], config)

    assert len(publication.receipts) == 1


def test_a_broker_listed_in_no_proxy_is_reached_directly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with FakeBroker() as broker, ProxyServer() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "127.0.0.0/8")
        publish([metric_message()], PublisherConfig((broker.url,)))

    assert len(broker.taken) == 1
    assert proxy.asked == []


@pytest.mark.parametrize("kind", ["stomp", "rest"])
def test_the_name_of_a_broker_behind_a_proxy_is_not_resolved_here(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    asked: list[str] = []
    real = socket.getaddrinfo

    def listen(host: Any, *rest: Any, **keywords: Any) -> Any:
        asked.append(str(host))
        return real(host, *rest, **keywords)

    with (
        FakeBroker() as broker,
        HttpStandIn(lambda _: SENT) as server,
        ProxyServer(hosts=KNOWN) as proxy,
    ):
        monkeypatch.setattr(socket, "getaddrinfo", listen)
        url = by_name(broker.url) if kind == "stomp" else rest_url(server)
        publication = publish([metric_message()], PublisherConfig((url,), proxy=proxy.url))

    assert len(publication.receipts) == 1
    assert NAME not in asked
    assert HOST in asked


def test_the_answer_of_a_broker_passes_the_proxy() -> None:
    no_queue = json_reply(200, {"routed": False})
    with HttpStandIn(lambda request: no_queue) as server, ProxyServer(hosts=KNOWN) as proxy:
        url = f"rabbitmq-api+http://{NAME}:{server.port}/%2F/amq.topic"
        config = PublisherConfig((url,), proxy=proxy.url)
        with pytest.raises(NoBrokerTookIt) as refusal:
            publish([metric_message()], config)

    (rejection,) = refusal.value.publication.rejections
    assert "no queue is bound to amq.topic" in rejection.reason
