"""The tables `[[consumer.broker]]`: whose credentials, proxy and headers a broker gets."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.load import load_consumer
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker_url import parse_broker

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


def loaded(
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


def problems_of(directory: Path, *tables: dict[str, Any], **common: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(directory, *tables, **common)
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
        config = loaded(tmp_path, {"url": OTHER, **credential}, **ours, ca_file=str(tmp_path))
        other = config.brokers[1]

        assert str(other) == OTHER
        assert config.user_at(other) in (None, "bridge")
        assert config.password_at(other) is None
        assert config.tls_files_at(other).certificate_file != tmp_path / "common.pem"
        assert config.tls_files_at(other).ca_file == tmp_path  # whom we trust is the same
        assert config.password_at(parse_broker(ONE)) == "of the section"


def test_a_table_without_credentials_uses_those_of_the_section(tmp_path: Path) -> None:
    own_ca = secret(tmp_path, "own-ca.pem")
    common = {"user": "common", "password_file": secret(tmp_path, "common-password")}

    config = loaded(tmp_path, {"url": ONE, "vhost": "sam", "ca_file": own_ca}, **common)
    one = parse_broker(ONE)

    assert config.brokers == (one,)
    assert (config.user_at(one), config.password_at(one)) == ("common", "common-password")
    assert config.tls_files_at(one).ca_file == Path(own_ca)
    assert config.vhost_at(one) == "sam"
    assert config.vhost_at(parse_broker(OTHER)) == "/"
    assert config.user_at(parse_broker(ONE.replace("//", "//eve@"))) == "eve"


def test_the_brokers_are_those_of_the_list_then_those_of_the_tables(tmp_path: Path) -> None:
    tables = [{"url": OTHER}, {"url": ONE}, {"url": "stomp://idle", "destinations": []}]

    assert [*map(str, loaded(tmp_path, *tables).brokers)] == [ONE, OTHER]
    assert [*map(str, loaded(tmp_path, {"url": OTHER}, brokers=None).brokers)] == [OTHER]
    assert loaded(tmp_path, {"url": OTHER}, to=(OTHER,)).brokers == (parse_broker(ONE),)


def test_a_table_chooses_the_subscriptions_of_its_broker(tmp_path: Path) -> None:
    config = loaded(tmp_path, {"url": OTHER, "destinations": [SITES]})

    at_one, at_other = map(config.subscriptions_at, config.network_brokers)
    assert [item.destination for item in at_one] == [METRICS, SITES]
    assert [item.destination for item in at_other] == [SITES]


def test_a_proxy_gets_the_password_of_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAM_CONSUMER_PROXY_PASSWORD", "of the section")
    own = {"url": OTHER, "proxy": "http://me@their-proxy:3128"}

    config = loaded(tmp_path, own, proxy="http://me@our-proxy:3128")
    ours, theirs = map(config.proxy_at, config.network_brokers)

    assert ours and (ours.host, ours.password) == ("our-proxy", "of the section")
    assert theirs and (theirs.host, theirs.password) == ("their-proxy", None)
    assert "[[consumer.broker]] proxy" in str(theirs)


def test_the_environment_names_a_proxy_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://squid:3128")

    config = loaded(tmp_path, {"url": OTHER, "proxy": "none"})

    assert [config.has_proxy(broker) for broker in config.network_brokers] == [True, False]


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
    problems = problems_of(tmp_path, table)

    assert stem in problems
    assert "hidden" not in problems
