"""Where passwords and tokens come from, and which files are not accepted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.stomp.session import open_session
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.settings import secrets
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema import secret_file
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.secret_file import (
    problem_of_certificate,
    problem_of_secret,
    read_secret,
)
from tests.services import PRIVILEGED, missing
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.http_stand_in import HttpStandIn, reply
from tests.support.brokers.stand_in import HOST

BROKER = parse_broker("stomp+ssl://sam@msg.example.org")
PASSWORD = "canary-of-the-brokers"
PROXY_PASSWORD = "canary-of-the-proxy"


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment without secrets, with its own directory for tokens."""
    for name in os.environ:
        if name.startswith(("SAM_", "BEARER_TOKEN", "CREDENTIALS_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    (tmp_path / "runtime").mkdir()


def secret_in_file(path: Path, text: str, mode: int = 0o600) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{text}\n")
    path.chmod(mode)
    return path


def discovered(directory: Path, text: str = "discovered") -> Path:
    return secret_in_file(directory / f"bt_u{os.geteuid()}", text)


def test_a_password_comes_from_the_variable_then_the_file_then_the_credential(
    tmp_path: Path,
) -> None:
    file = secret_in_file(tmp_path / "file", "of-file")
    secret_in_file(tmp_path / "credentials" / secrets.PASSWORD_CREDENTIAL, "of-credential")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")}

    assert secrets.password(file, {**environ, secrets.PASSWORD: "of-variable"}) == "of-variable"
    assert secrets.password(file, environ) == "of-file"
    assert secrets.password(file, {secrets.PASSWORD: ""}) == "of-file"
    assert secrets.password(None, environ) == "of-credential"
    assert secrets.password(None, {}) is None


def test_a_token_comes_from_our_own_sources_and_then_from_wlcg_discovery(tmp_path: Path) -> None:
    file = secret_in_file(tmp_path / "file", "of-file")
    secret_in_file(tmp_path / "credentials" / secrets.TOKEN_CREDENTIAL, "of-credential")
    discovered(tmp_path / "runtime")
    sources = {
        secrets.TOKEN: "of-variable",
        "CREDENTIALS_DIRECTORY": str(tmp_path / "credentials"),
        "BEARER_TOKEN": " of-bearer ",
        "BEARER_TOKEN_FILE": str(secret_in_file(tmp_path / "bearer", "of-bearer-file")),
        "XDG_RUNTIME_DIR": str(tmp_path / "runtime"),
    }

    tokens = [secrets.token(file, sources)]
    del sources[secrets.TOKEN]
    tokens.append(secrets.token(file, sources))
    for name in list(sources):
        tokens.append(secrets.token(None, sources))
        del sources[name]

    assert tokens == [
        "of-variable",
        "of-file",
        "of-credential",
        "of-bearer",
        "of-bearer-file",
        "discovered",
    ]


def test_an_empty_variable_names_no_token(tmp_path: Path) -> None:
    discovered(tmp_path / "runtime")
    environ = dict.fromkeys((secrets.TOKEN, "BEARER_TOKEN", "BEARER_TOKEN_FILE"), "")

    assert secrets.token(None, {**environ, "XDG_RUNTIME_DIR": str(tmp_path / "runtime")}) == (
        "discovered"
    )


def test_a_missing_bearer_token_file_is_an_error_even_if_another_token_exists(
    tmp_path: Path,
) -> None:
    discovered(tmp_path / "runtime")
    environ = {
        "BEARER_TOKEN_FILE": str(tmp_path / "missing"),
        "XDG_RUNTIME_DIR": str(tmp_path / "runtime"),
    }

    with pytest.raises(ConfigError, match="missing: no such file or directory"):
        secrets.token(None, environ)


def test_a_discovered_token_is_taken_from_a_file_or_link_of_our_own(tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    (runtime / f"bt_u{os.geteuid()}").symlink_to(secret_in_file(tmp_path / "target", "linked"))

    assert secrets.token(None, {"XDG_RUNTIME_DIR": str(runtime)}) == "linked"


def test_a_link_of_another_user_is_not_followed(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        missing("the privilege to give files away", PRIVILEGED)
    link = tmp_path / "runtime" / "bt_u0"
    link.symlink_to(secret_in_file(tmp_path / "private", "private"))
    os.chown(link, 12345, 12345, follow_symlinks=False)
    environ = {"XDG_RUNTIME_DIR": str(tmp_path / "runtime")}

    assert secrets.discovered_token_file(environ) in (None, Path("/tmp/bt_u0"))


def test_a_runtime_directory_without_access_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "lstat", refuse)

    assert secrets.token(None, {"XDG_RUNTIME_DIR": "/run/user/0"}) is None


def test_a_credential_without_access_is_an_error_rather_than_absent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", refuse)
    monkeypatch.setattr(Path, "open", refuse)

    with pytest.raises(ConfigError, match=f"{secrets.PASSWORD_CREDENTIAL}: permission denied"):
        secrets.password(None, {"CREDENTIALS_DIRECTORY": str(tmp_path)})


@pytest.mark.parametrize(
    ("mode", "by_root", "accepted"),
    [
        (0o600, False, True),
        (0o400, False, True),
        (0o640, False, False),
        (0o604, False, False),
        (0o620, False, False),
        (0o601, False, False),
        (0o640, True, True),
        (0o440, True, True),
        (0o444, True, False),
        (0o660, True, False),
        (0o644, True, False),
    ],
)
def test_a_secret_is_private_to_its_owner_or_to_a_group_of_root(
    mode: int, by_root: bool, accepted: bool
) -> None:
    owner = 0 if by_root else 1000
    status = os.stat_result((0o100000 | mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))

    problem = secret_file.exposure(status)

    assert (problem is None) is accepted
    if problem:
        assert f"(mode {mode:04o}): chmod 600" in problem


@pytest.mark.parametrize(
    ("content", "mode", "stem"),
    [
        (b"canary\n", 0o644, r"is accessible to other users \(mode 0644\): chmod 600"),
        (b"", 0o600, "first line is empty"),
        (b" \ncanary\n", 0o600, "first line is empty"),
        (b"canary\xff\n", 0o600, "is not UTF-8"),
    ],
)
def test_an_unusable_file_is_reported_without_its_content(
    tmp_path: Path, content: bytes, mode: int, stem: str
) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    file.chmod(mode)

    with pytest.raises(ConfigError, match=stem) as refusal:
        read_secret(file)

    assert str(file) in str(refusal.value)
    assert "canary" not in str(refusal.value)
    assert refusal.value.__cause__ is None


def test_a_directory_is_not_a_secret(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory"):
        read_secret(tmp_path)
    assert problem_of_secret(tmp_path) == f"{tmp_path}: is a directory"


def test_only_the_first_line_of_a_file_counts_without_blanks_around_it(tmp_path: Path) -> None:
    assert read_secret(secret_in_file(tmp_path / "s", " pass word ü \nmore")) == "pass word ü"


@pytest.mark.parametrize("token", ["canary\nX-Evil: 1", "canary token", "canary\x07", "canaryü"])
def test_a_token_with_invalid_characters_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(ConfigError, match="SAM_PUBLISHER_TOKEN: contains characters") as refusal:
        secrets.token(None, {secrets.TOKEN: token})

    assert "canary" not in str(refusal.value)


def test_a_certificate_with_its_key_is_a_secret_but_one_without_is_not(tmp_path: Path) -> None:
    alone = secret_in_file(tmp_path / "cert.pem", "-----BEGIN CERTIFICATE-----", mode=0o644)
    both = secret_in_file(tmp_path / "both.pem", "-----BEGIN RSA PRIVATE KEY-----", mode=0o644)

    assert problem_of_certificate(alone) is None
    assert f"{both}: is accessible to other users" in str(problem_of_certificate(both))
    both.chmod(0o600)
    assert problem_of_certificate(both) is None


def test_without_a_user_no_password_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(secrets.PASSWORD, "canary")

    assert PublisherConfig().login(parse_broker("stomp://msg.example.org")) == (None, None)
    assert PublisherConfig(user="sam").login(parse_broker("stomp://localhost")) == ("sam", "canary")
    assert PublisherConfig(user="other").login(BROKER) == ("sam", "canary")


def test_no_password_is_sent_in_plain_text_to_another_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(secrets.PASSWORD, "canary")
    broker = parse_broker("stomp://sam@msg.example.org")

    with pytest.raises(BrokerUnavailable, match="insecure = true"):
        PublisherConfig().login(broker)
    assert PublisherConfig(insecure=True).login(broker) == ("sam", "canary")


def test_a_temporarily_unusable_file_makes_the_broker_unavailable(tmp_path: Path) -> None:
    config = PublisherConfig(password_file=tmp_path / "gone", token_file=tmp_path / "gone")

    with pytest.raises(BrokerUnavailable, match="gone: no such file or directory"):
        config.login(BROKER)
    with pytest.raises(BrokerUnavailable, match=r"msg.example.org.*gone: no such file"):
        config.token(BROKER)


def test_a_password_that_was_rotated_is_used_at_the_next_connect(tmp_path: Path) -> None:
    file = secret_in_file(tmp_path / "password", "old")
    config = PublisherConfig(user="sam", password_file=file)

    with FakeBroker() as fake:
        address = BrokerAddress(parse_broker(fake.url), HOST)
        open_session(address, config, Deadline.after(5)).close()
        file.write_text("new\n")
        open_session(address, config, Deadline.after(5)).close()

    assert [login.headers["passcode"] for login in fake.logins] == ["old", "new"]


def test_a_password_that_was_rotated_is_used_by_the_next_session_over_http(tmp_path: Path) -> None:
    from sam_pipeline.publisher.brokers.rest.activemq import connect

    file = secret_in_file(tmp_path / "password", "old")
    config = PublisherConfig(user="sam", password_file=file)

    with HttpStandIn(lambda request: reply(200)) as server:
        address = BrokerAddress(
            parse_broker(f"activemq-rest+http://{HOST}:{server.port}/api/message"), HOST
        )
        connect(address, config, Deadline.after(5)).close()
        file.write_text("new\n")
        connect(address, config, Deadline.after(5)).close()

    logins = [request.headers["authorization"] for request in server.asked]
    assert logins == ["Basic c2FtOm9sZA==", "Basic c2FtOm5ldw=="]


def test_a_rotated_token_is_read_again(tmp_path: Path) -> None:
    config = PublisherConfig(token_file=secret_in_file(tmp_path / "token", "old"))
    before = config.token(BROKER)
    (tmp_path / "token").write_text("new\n")

    assert (before, config.token(BROKER)) == ("old", "new")


def test_the_sources_of_secrets_are_shown_without_their_values(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(secrets.PASSWORD, "canary")
    config = PublisherConfig(
        token_file=secret_in_file(tmp_path / "token", "canary", mode=0o644),
        proxy_password_file=secret_in_file(tmp_path / "proxy", "canary"),
    )

    assert config.has_secrets() == {"password": True, "token": False, "proxy password": True}


def test_the_text_of_a_configuration_shows_no_password_of_a_url() -> None:
    urls = (f"stomp://sam:{PASSWORD}@msg.example.org:61613", f"sam:{PASSWORD}@msg", "stomp://b")
    config = PublisherConfig(urls, proxy=f"http://u:{PROXY_PASSWORD}@p:3128")

    for text in (repr(config), str(config), f"{config}"):
        assert PASSWORD not in text
        assert PROXY_PASSWORD not in text
        assert "'stomp://msg.example.org:61613'" in text
        assert "'stomp://b'" in text


@pytest.mark.parametrize(
    "url",
    [
        f"stomp://sam:{PASSWORD}@msg.example.org",
        f"stomp://sam:{PASSWORD}/x@msg.example.org",
        f"stomp://sam:7/{PASSWORD}@msg.example.org",
        f"activemq-rest+http://sam:7/{PASSWORD}@msg.example.org/api/message",
        f"stomp://sam:7#{PASSWORD}@msg.example.org",
        f"stomp://sam:{PASSWORD}\u2100@msg.example.org",
        f"stomp://sam:[{PASSWORD}]@msg.example.org",
        f"stomp://sam@msg.example.org:{PASSWORD}",
        f"stomp:/sam:{PASSWORD}@msg.example.org",
        f"sam:{PASSWORD}@msg.example.org",
        f"//{PASSWORD}@msg",
        f"spool://sam:{PASSWORD}@msg.example.org/spool",
    ],
)
def test_a_refused_broker_url_is_reported_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="broker URL") as refusal:
        parse_broker(url)

    assert PASSWORD[:8] not in str(refusal.value)


def test_credentials_change_with_each_secret_and_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = parse_broker("stomp+ssl://probe@msg.example.org")
    paths = [tmp_path / name for name in ("password", "token", "ca.pem", "cert.pem", "key.pem")]
    for path in paths:
        path.write_text("first\n")
        path.chmod(0o600)
    password, token, ca, certificate, key = paths
    config = PublisherConfig(
        password_file=password,
        token_file=token,
        ca_file=ca,
        certificate_file=certificate,
        key_file=key,
    )

    seen = [config.credentials(broker)]
    assert config.credentials(broker) == seen[0]
    for path in paths:
        path.write_text("the second\n")
        seen.append(config.credentials(broker))
    monkeypatch.setenv("SAM_PUBLISHER_PASSWORD", "third")
    seen.append(config.credentials(broker))
    monkeypatch.setenv("https_proxy", "http://proxy.example.org:3128")
    seen.append(config.credentials(broker))
    seen.append(config._replace(proxy="http://other.example.org").credentials(broker))
    password.unlink()
    token.unlink()
    seen.append(config.credentials(broker))

    assert len(set(seen)) == len(seen)
