"""Logins at single brokers: `[[consumer.login]]`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.consumer.settings.config import ConsumerConfig, load_consumer
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker_url import parse_broker

ONE, OTHER = "stomp+ssl://msg1.example.org:61614", "stomp+ssl://msg2.example.org:61614"


def secret(directory: Path, text: str) -> str:
    path = directory / text
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def loaded(directory: Path, *logins: dict[str, Any], **common: Any) -> ConsumerConfig:
    keys = {"name": "site-a", "brokers": [ONE], **common}
    lines = ["[consumer]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    for login in logins:
        lines += ["[[consumer.login]]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in login.items()]
    lines += ["[[consumer.subscription]]", 'destination = "/topic/x"']
    config = directory / "sam.toml"
    config.write_text("\n".join(lines))
    return load_consumer(argparse.Namespace(config=str(config)))


def test_a_broker_with_a_login_of_its_own_uses_nothing_of_the_common_one(tmp_path: Path) -> None:
    common = {"user": "common", "password_file": secret(tmp_path, "common-password")}
    certificate = {"certificate_file": secret(tmp_path, "common.pem"), "ca_file": str(tmp_path)}
    own = {"broker": OTHER, "user": "bridge", "password_file": secret(tmp_path, "bridge-password")}

    config = loaded(tmp_path, own, **common, **certificate)
    one, other = parse_broker(ONE), parse_broker(OTHER)

    assert (config.user_at(one), config.password_at(one)) == ("common", "common-password")
    assert (config.user_at(other), config.password_at(other)) == ("bridge", "bridge-password")
    assert config.tls_files_at(one).certificate_file == tmp_path / "common.pem"
    assert config.tls_files_at(other).certificate_file is None
    assert config.tls_files_at(other).ca_file == tmp_path  # whom we trust is the same


def test_a_login_with_a_certificate_has_no_user_and_no_password(tmp_path: Path) -> None:
    own = {"broker": OTHER, "certificate_file": secret(tmp_path, "own.pem")}

    config = loaded(tmp_path, own, user="common", password_file=secret(tmp_path, "common-password"))
    other = parse_broker(OTHER)

    assert (config.user_at(other), config.password_at(other)) == (None, None)
    assert config.tls_files_at(other).certificate_file == tmp_path / "own.pem"


def test_the_user_in_a_url_takes_precedence(tmp_path: Path) -> None:
    config = loaded(tmp_path, {"broker": OTHER, "user": "bridge"})

    assert config.user_at(parse_broker("stomp+ssl://eve@msg2.example.org:61614")) == "eve"


@pytest.mark.parametrize(
    ("logins", "stem"),
    [
        ([{"broker": "spool:///in"}], "expected stomp://"),
        ([{"broker": OTHER}, {"broker": OTHER}], "appears twice"),
        ([{"user": "x"}], "broker is missing"),
        ([{"broker": ONE.replace("+ssl", ""), "user": "x"}], "plain text"),
    ],
)
def test_a_bad_login_is_a_problem_of_the_configuration(
    tmp_path: Path, logins: list[dict[str, Any]], stem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, *logins, brokers=[ONE.replace("+ssl", "")])

    assert stem in str(caught.value)
