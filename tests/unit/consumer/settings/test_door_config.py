"""The table `[consumer.door]`: who may send to which address."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.load import load_consumer, tokens_path
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker_url import parse_broker

LOCAL = "listen+http://127.0.0.1:8080"
OPEN = "listen+http://0.0.0.0:8080"
SECURE = "listen+https://0.0.0.0:8443"


@pytest.fixture
def sam_toml(tmp_path: Path) -> Path:
    (tmp_path / "host.pem").touch()
    return tmp_path / "sam.toml"


def loaded(sam_toml: Path, url: str, door: str = "") -> ConsumerConfig:
    sam_toml.write_text(f'[consumer]\nbrokers = ["{url}"]\n[consumer.door]\n{door}\n')
    return load_consumer(argparse.Namespace(config=str(sam_toml)))


def problems_of(sam_toml: Path, url: str, door: str = "") -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(sam_toml, url, door)
    return "\n".join(caught.value.problems)


def test_an_address_of_this_machine_needs_no_settings(sam_toml: Path) -> None:
    assert loaded(sam_toml, LOCAL).door.admits_anonymous(parse_broker(LOCAL))


def test_plain_http_beyond_this_machine_is_a_decision(sam_toml: Path) -> None:
    problem = problems_of(sam_toml, OPEN, 'tokens_file = "tokens"')

    assert "insecure = true" in problem
    assert loaded(sam_toml, OPEN, 'tokens_file = "tokens"\ninsecure = true')


def test_https_needs_a_certificate(sam_toml: Path) -> None:
    assert "certificate_file" in problems_of(sam_toml, SECURE, 'tokens_file = "tokens"')


@pytest.mark.parametrize(
    "way", ['tokens_file = "tokens"', 'client_ca_file = "host.pem"', "require_identity = false"]
)
def test_a_door_that_nobody_could_pass_is_a_problem(sam_toml: Path, way: str) -> None:
    certificate = 'certificate_file = "host.pem"\n'

    assert "nobody could send" in problems_of(sam_toml, SECURE, certificate)
    config = loaded(sam_toml, SECURE, certificate + way)
    anonymous = config.door.admits_anonymous(parse_broker(SECURE))
    assert anonymous == (way == "require_identity = false")


def test_client_certificates_do_not_help_without_tls(sam_toml: Path) -> None:
    settings = 'client_ca_file = "host.pem"\nrequire_identity = true'

    assert "nobody could send" in problems_of(sam_toml, LOCAL, settings)


def test_the_file_of_tokens_need_not_exist_before_the_first_one(sam_toml: Path) -> None:
    config = loaded(sam_toml, LOCAL, 'tokens_file = "tokens"')

    assert config.door.tokens_file == sam_toml.with_name("tokens")
    args = argparse.Namespace(config=str(sam_toml), instance=None)
    assert tokens_path(args) == sam_toml.with_name("tokens")


def test_a_table_with_problems_is_reported_by_every_command_that_reads_it(sam_toml: Path) -> None:
    sam_toml.write_text("[consumer]\n[consumer.door]\ntokens_file = 7\n")

    with pytest.raises(ConfigError, match="tokens_file: expected a path"):
        tokens_path(argparse.Namespace(config=str(sam_toml), instance=None))


def test_sockets_of_systemd_are_those_of_this_process(
    sam_toml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LISTEN_FDS", "2")
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    assert loaded(sam_toml, LOCAL).inherited_sockets == 2

    monkeypatch.setenv("LISTEN_PID", str(os.getppid()))
    assert loaded(sam_toml, LOCAL).inherited_sockets == 0
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    for odd in ("", "-1", "two"):
        monkeypatch.setenv("LISTEN_FDS", odd)
        assert loaded(sam_toml, LOCAL).inherited_sockets == 0
