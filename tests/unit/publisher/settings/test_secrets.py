"""Where passwords and tokens come from, and which files are not accepted."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.publisher.brokers import tokens as secrets
from sam_pipeline.publisher.brokers.connection import usable
from sam_pipeline.publisher.brokers.stomp import StompTransport
from sam_pipeline.publisher.delivery.route import credentials_of
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.schema import secret_file
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker import Broker, Target, parse_broker
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.secret_file import (
    Secret,
    problem_of_certificate,
    problem_of_secret,
    read_secret,
)
from sam_pipeline.schema.settings.broker import secret_of
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.stand_in import HOST
from tests.support.publishing import secret

BROKER = parse_broker("stomp+ssl://sam@msg.example.org")
PASSWORD = "canary-of-the-brokers"
PASSWORD_OF, TOKEN_OF = secret_of("publisher", "password"), secret_of("publisher", "token")


def discovered(directory: Path) -> Path:
    return secret(directory / f"bt_u{os.geteuid()}", "discovered")


@pytest.fixture(autouse=True)
def no_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (PASSWORD_OF.variable, TOKEN_OF.variable, "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)


def test_a_password_comes_from_variable_file_or_credential(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = secret(tmp_path / "file", "of-file")
    secret(tmp_path / "credentials" / PASSWORD_OF.credential, "of-credential")
    both = PASSWORD_OF._replace(file=file)

    assert PASSWORD_OF.read() is None
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "credentials"))
    assert (both.read(), PASSWORD_OF.read()) == ("of-file", "of-credential")
    monkeypatch.setenv(PASSWORD_OF.variable, "")
    assert both.read() == "of-file"
    monkeypatch.setenv(PASSWORD_OF.variable, "of-variable")
    assert both.read() == "of-variable"
    assert Secret().read() is None  # of a broker that gets none of ours


def test_a_token_comes_from_our_own_sources_and_then_from_wlcg_discovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = secret(tmp_path / "file", "of-file")
    secret(tmp_path / "credentials" / TOKEN_OF.credential, "of-credential")
    discovered(tmp_path)
    sources = {
        TOKEN_OF.variable: "of-variable",
        "CREDENTIALS_DIRECTORY": str(tmp_path / "credentials"),
        "BEARER_TOKEN": " of-bearer ",
        "BEARER_TOKEN_FILE": str(secret(tmp_path / "bearer", "of-bearer-file")),
        "XDG_RUNTIME_DIR": str(tmp_path),
    }
    for name, value in sources.items():
        monkeypatch.setenv(name, value)

    def token(file: Path | None = None) -> str | None:
        return secrets.token_for(Target(BROKER, token=TOKEN_OF._replace(file=file)))

    with monkeypatch.context() as patch:
        for name in (TOKEN_OF.variable, "CREDENTIALS_DIRECTORY", "BEARER_TOKEN"):
            patch.setenv(name, "")
        patch.setenv("BEARER_TOKEN_FILE", "")
        assert token() == "discovered"
    tokens = [token(file)]
    monkeypatch.delenv(TOKEN_OF.variable)
    tokens.append(token(file))
    for name in [*sources][1:]:
        tokens.append(token())
        monkeypatch.delenv(name)

    with pytest.raises(ConfigError, match="missing: no such file or directory"):
        secrets.discovered_token(
            {"BEARER_TOKEN_FILE": "/missing", "XDG_RUNTIME_DIR": str(tmp_path)}
        )

    of = ("variable", "file", "credential", "bearer", "bearer-file")
    assert tokens == [*(f"of-{source}" for source in of), "discovered"]


def test_only_a_link_of_ours_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tmp_path / f"bt_u{os.geteuid()}"
    link.symlink_to(secret(tmp_path / "target", "linked"))
    lstat, environ = Path.lstat, {"XDG_RUNTIME_DIR": str(tmp_path)}

    def of_another_user(path: Path) -> os.stat_result:
        status = lstat(path)
        return os.stat_result((*status[:4], 12345, *status[5:])) if path == link else status

    assert secrets.discovered_token(environ) == "linked"
    monkeypatch.setattr(Path, "lstat", of_another_user)
    assert secrets.discovered_token_file(environ) != link


def test_no_access_is_an_error_of_credentials(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    for name in ("lstat", "stat", "open"):
        monkeypatch.setattr(Path, name, refuse)

    assert secrets.discovered_token({"XDG_RUNTIME_DIR": "/run/user/0"}) is None
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    with pytest.raises(ConfigError, match=f"{PASSWORD_OF.credential}: permission denied"):
        PASSWORD_OF.read()


@pytest.mark.parametrize(
    ("owner", "accepted", "refused"),
    [
        (1000, (0o600, 0o400), (0o640, 0o604, 0o620, 0o601)),
        (0, (0o600, 0o640, 0o440), (0o444, 0o660, 0o644)),
    ],
)
def test_a_secret_is_private_to_its_owner_or_to_a_group_of_root(
    owner: int, accepted: tuple[int, ...], refused: tuple[int, ...]
) -> None:
    for mode in (*accepted, *refused):
        status = os.stat_result((0o100000 | mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))
        problem = f"(mode {mode:04o}): chmod 600" if mode in refused else "None"
        assert problem in str(secret_file.exposure(status))


@pytest.mark.parametrize(
    ("content", "mode", "stem"),
    [
        (b"canary\n", 0o644, r"is accessible to other users \(mode 0644\): chmod 600"),
        (b"", 0o600, "first line is empty"),
        (b"canary\xff\n", 0o600, "is not UTF-8"),
    ],
)
def test_an_unusable_file_is_hidden(tmp_path: Path, content: bytes, mode: int, stem: str) -> None:
    file = secret(tmp_path / "secret", mode=mode)
    file.write_bytes(content)

    with pytest.raises(ConfigError, match=stem) as refusal:
        read_secret(file)

    assert str(file) in str(refusal.value)
    assert "canary" not in str(refusal.value)
    assert refusal.value.__cause__ is None


def test_only_the_first_line_of_a_file_counts_without_blanks_around_it(tmp_path: Path) -> None:
    assert read_secret(secret(tmp_path / "s", " pass word ü \nmore")) == "pass word ü"
    with pytest.raises(ConfigError, match="is a directory"):
        read_secret(tmp_path)
    assert problem_of_secret(tmp_path) == f"{tmp_path}: is a directory"


@pytest.mark.parametrize("token", ["canary\nX-Evil: 1", "canary token", "canary\x07", "canaryü"])
def test_a_token_with_invalid_characters_is_refused_and_not_repeated(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_OF.variable, token)
    with pytest.raises(ConfigError, match="SAM_PUBLISHER_TOKEN: contains characters") as refusal:
        secrets.configured_token(TOKEN_OF)

    assert "canary" not in str(refusal.value)


def test_a_certificate_with_its_key_is_a_secret_but_one_without_is_not(tmp_path: Path) -> None:
    alone = secret(tmp_path / "cert.pem", "-----BEGIN CERTIFICATE-----", mode=0o644)
    both = secret(tmp_path / "both.pem", "-----BEGIN RSA PRIVATE KEY-----", mode=0o644)

    assert problem_of_certificate(alone) is None
    assert f"{both}: is accessible to other users" in str(problem_of_certificate(both))


def test_a_password_never_goes_in_plain_text_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_OF.variable, "canary")
    plain = parse_broker("stomp://sam@msg.example.org")

    def login(broker: Broker, **settings: Any) -> tuple[str | None, str | None]:
        return PublisherConfig(**settings).target_of(broker).login()

    assert login(parse_broker("stomp://msg.example.org")) == (None, None)
    assert login(parse_broker("stomp://localhost"), user="sam") == ("sam", "canary")
    assert login(BROKER, user="other") == ("sam", "canary")
    with pytest.raises(ConfigError, match="insecure = true"):
        login(plain)
    assert login(plain, insecure=True) == ("sam", "canary")


def test_a_temporarily_unusable_file_makes_the_broker_unavailable(tmp_path: Path) -> None:
    config = PublisherConfig(password_file=tmp_path / "gone", token_file=tmp_path / "gone")
    target = config.target_of(BROKER)

    for read in (target.login, partial(secrets.token_for, target)):
        with pytest.raises(BrokerUnavailable, match=r"msg.example.org.*gone: no such file"):
            usable(target, read)


def test_a_rotated_secret_is_used_at_the_next_connect(tmp_path: Path) -> None:
    file, tokens = tmp_path / "secret", []
    config = PublisherConfig(user="sam", password_file=file, token_file=file)
    with FakeBroker() as stomp:
        target = config.target_of(parse_broker(stomp.url))._replace(ip=HOST)
        for text in ("old", "new"):
            secret(file, text)
            tokens.append(secrets.token_for(target))
            StompTransport(target, Deadline.after(30)).close()

    assert tokens == [login.headers["passcode"] for login in stomp.logins] == ["old", "new"]


def test_the_text_of_a_configuration_shows_no_password_of_a_url() -> None:
    urls = (f"stomp://sam:{PASSWORD}@msg.example.org:61613", f"sam:{PASSWORD}@msg", "stomp://b")
    config = PublisherConfig(brokers=urls, proxy=f"http://u:{PASSWORD}@p:3128")

    for text in (repr(config), str(config)):
        assert PASSWORD not in text
        assert "'stomp://msg.example.org:61613'" in text and "'stomp://b'" in text


@pytest.mark.parametrize(
    "url",
    [
        f"stomp://sam:{PASSWORD}@msg.example.org",
        f"stomp://sam:7/{PASSWORD}@msg.example.org",
        f"stomp://sam:7#{PASSWORD}@msg.example.org",
        f"stomp://sam:{PASSWORD}\u2100@msg.example.org",
        f"stomp://sam:[{PASSWORD}]@msg.example.org",
        f"stomp://sam@msg.example.org:{PASSWORD}",
        f"sam:{PASSWORD}@msg.example.org",
        f"spool://sam:{PASSWORD}@msg.example.org/spool",
    ],
)
def test_a_refused_broker_url_is_reported_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="broker URL") as refusal:
        parse_broker(url)

    assert PASSWORD[:8] not in str(refusal.value)


def test_credentials_change_with_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("password_file", "token_file", "ca_file", "certificate_file", "key_file")
    files = {name: secret(tmp_path / name, "first") for name in names}
    config = PublisherConfig(**files)  # type: ignore[arg-type]

    target = config.target_of(BROKER)
    seen = [credentials_of(target)]
    assert credentials_of(target) == seen[0]
    for path in files.values():
        path.write_text("the second\n")
        seen.append(credentials_of(target))
    monkeypatch.setenv("SAM_PUBLISHER_PASSWORD", "third")
    seen.append(credentials_of(target))
    seen.append(credentials_of(target._replace(proxy="http://other.example.org")))
    files["token_file"].unlink()
    seen.append(credentials_of(target))

    assert len({*seen}) == len(seen)
