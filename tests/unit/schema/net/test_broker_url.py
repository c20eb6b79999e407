"""Broker URLs: the valid forms, and the reasons why others are refused."""

from __future__ import annotations

import re

import pytest

from sam_pipeline.schema.net.broker_url import Broker, parse_broker, problem_of_login

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


def test_a_login_that_nobody_can_overhear_is_permitted() -> None:
    for url in UNHEARD.split():
        assert problem_of_login(parse_broker(url), "sam", insecure=False) is None
