"""Where the database is: the section [database]."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.sql.database.config import DatabaseConfig, load_database, note_on_plain_text
from sam_pipeline.sql.database.engine import make_engine, parse_url, postgresql_arguments


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("SAM_CONFIG", "SAM_DATABASE_URL", "PGHOST", "PGSSLMODE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))


def written(file: Path, url: str) -> Namespace:
    file.parent.mkdir(exist_ok=True)
    file.write_text(f'[database]\nurl = "{url}"\n')
    file.chmod(0o600)
    return Namespace(config=str(file))


def test_a_relative_path_in_the_file_is_relative_to_the_file(tmp_path: Path) -> None:
    args = written(tmp_path / "site" / "sam.toml", "sqlite:///data/sam.db")

    assert load_database(args).url == f"sqlite:///{tmp_path}/site/data/sam.db"


@pytest.mark.parametrize(
    "url", ["sqlite:////var/lib/sam/sam.db", "postgresql+psycopg2://sam:secret@db.example.org/sam"]
)
def test_other_urls_stay_as_they_are(tmp_path: Path, url: str) -> None:
    assert load_database(written(tmp_path / "sam.toml", url)).url == url


def test_the_environment_beats_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = written(tmp_path / "sam.toml", "sqlite:///file.db")
    monkeypatch.setenv("SAM_DATABASE_URL", "sqlite:///environment.db")

    assert load_database(args).url == "sqlite:///environment.db"


def test_a_missing_url_is_a_problem() -> None:
    with pytest.raises(ConfigError, match="url is missing"):
        load_database(Namespace(config=None))


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "mysql://u:secret@h/d",
        "sqlite://",
        "sqlite:///:memory:",
        "postgresql://h:x/d",
        "postgresql://u:top@secret@h/d",
        "postgresql://u:top@and/secret@h/d",
    ],
)
def test_a_url_of_another_kind_is_refused_without_its_password(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_database(written(tmp_path / "sam.toml", url))

    assert "[database] url" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_password_is_not_in_the_repr() -> None:
    assert "secret" not in repr(DatabaseConfig("postgresql://sam:secret@db/sam"))


@pytest.mark.parametrize(
    ("url", "mode"),
    [
        ("postgresql://sam:secret@db.example.org/sam", "prefer"),
        ("postgresql://sam@10.0.0.1/sam?sslmode=allow", "allow"),
        ("postgresql:///sam?host=127.0.0.1:5432&host=db2.example.org:5432", "prefer"),
    ],
)
def test_a_database_that_may_be_reached_in_plain_text_is_noted(url: str, mode: str) -> None:
    note = note_on_plain_text(url)

    assert note is not None
    assert f"sslmode is {mode}" in note
    assert "?sslmode=verify-full" in note
    assert "secret" not in note


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////var/lib/sam/sam.db",
        "postgresql:///sam",
        "postgresql:///sam?host=/run/postgresql",
        "postgresql://localhost/sam",
        "postgresql://[::1]:5432/sam",
        "postgresql://db.example.org/sam?sslmode=require",
        "postgresql://db.example.org/sam?sslmode=verify-full",
    ],
)
def test_a_database_on_this_machine_or_over_tls_is_not_noted(url: str) -> None:
    assert note_on_plain_text(url) is None


def test_variables_of_libpq_count_for_the_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db.example.org")
    noted = note_on_plain_text("postgresql:///sam")
    monkeypatch.setenv("PGSSLMODE", "verify-full")

    assert noted
    assert note_on_plain_text("postgresql:///sam") is None


def test_postgresql_without_a_driver_means_psycopg2() -> None:
    assert parse_url("postgresql://db/sam").drivername == "postgresql+psycopg2"


def test_an_unknown_parameter_of_a_url_is_refused() -> None:
    with pytest.raises(ConfigError, match='"ssl_mode"') as caught:
        make_engine("postgresql://sam:secret@db/sam?ssl_mode=verify-full")

    assert "secret" not in str(caught.value)


def test_arguments_in_the_url_beat_our_defaults() -> None:
    url = parse_url("postgresql://db/sam?connect_timeout=3&options=-c%20lock_timeout%3D5s")

    arguments = postgresql_arguments(url)

    assert "connect_timeout" not in arguments  # the driver takes it from the URL
    assert arguments["options"].startswith("-c timezone=UTC ")
    assert arguments["options"].endswith(" -c lock_timeout=5s")  # the last one counts


@pytest.mark.parametrize("timeout", ["soon", "5s"])
def test_a_busy_timeout_that_is_not_a_number_is_refused(timeout: str) -> None:
    with pytest.raises(ConfigError, match=f"timeout={timeout} is not a number"):
        parse_url(f"sqlite:////var/lib/sam/sam.db?timeout={timeout}")
