"""The tables [[import.feed]]: all problems at once."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.program.command import CONFIG, OK, UNAVAILABLE
from sam_pipeline.sql.cli import main
from sam_pipeline.sql.imports.http.feed_config import FeedConfig, feed_at, load_feeds

GOCDB = 'kind = "gocdb"\nurl = "https://goc.example.org/gocdbpi"\n'
VO = 'kind = "vofeed"\nurl = "https://vo.example.org/feed.xml"\n'


@pytest.fixture
def load(tmp_path: Path) -> Any:
    """Loads feeds from the text of their tables."""

    def load(*tables: str) -> tuple[FeedConfig, ...]:
        (tmp_path / "sam.toml").write_text("".join(f"[[import.feed]]\n{t}" for t in tables))
        return load_feeds(argparse.Namespace(config=str(tmp_path / "sam.toml")))

    return load


def test_a_feed_needs_its_kind_and_url_only(load: Any) -> None:
    [gocdb, vo_feed] = load(GOCDB, VO)

    assert gocdb.contents == ("endpoints", "groups", "downtimes")
    assert vo_feed.contents == ("feed",)
    assert (gocdb.timeout_s, gocdb.certificate_file) == (600, None)


def test_without_tables_there_is_no_feed(load: Any) -> None:
    assert load() == ()


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        (['kind = "gocbd"\nurl = "https://x"\n'], "kind: expected one of gocdb, vofeed, cric"),
        (['kind = "gocdb"\n'], "url is missing"),
        (['kind = "gocdb"\nurl = "goc.example.org"\n'], "is not the URL of a server"),
        (['kind = "gocdb"\nurl = "ftp://x"\n'], "is not the URL of a server"),
        (['kind = "gocdb"\nurl = "https://x:y"\n'], "is not a URL"),
        (['kind = "gocdb"\nurl = "https://jane@x"\n'], "must not contain a login"),
        (['kind = "gocdb"\nurl = "https://x#y"\n'], "must not contain a fragment"),
        ([GOCDB + "urll = 1\n"], "unknown key urll (did you mean url"),
        ([GOCDB + 'read = ["endpoint"]\n'], "endpoint: expected endpoints, groups, downtimes"),
        ([GOCDB.replace("gocdb", "cric", 1) + 'read = ["downtimes"]\n'], "cric has no downtimes"),
        ([VO + 'read = ["groups"]\n'], "vofeed has no groups"),
        ([GOCDB + "timeout_s = 0\n"], "expected more than 0"),
        ([GOCDB + "max_bytes = -1\n"], "expected more than 0"),
        ([GOCDB + 'ca_file = "/nowhere"\n'], "/nowhere: no such file"),
        ([GOCDB + 'proxy = "http://u:p@x"\n'], "use proxy_password_file"),
        ([GOCDB + 'key_file = "key.pem"\n'], "key_file without certificate_file"),
        (
            [GOCDB.replace("https", "http") + 'certificate_file = "key.pem"\n'],
            "can't be used with http://",
        ),
        ([GOCDB, GOCDB.replace("goc.", "goc2.")], "gocdb appears 2 times"),
        ([VO, VO], "feed.xml appears 2 times"),
    ],
)
def test_each_problem_is_reported(
    load: Any, tmp_path: Path, tables: list[str], problem: str
) -> None:
    (tmp_path / "key.pem").write_text("PRIVATE KEY")
    (tmp_path / "key.pem").chmod(0o600)

    with pytest.raises(ConfigError) as caught:
        load(*tables)

    assert problem in str(caught.value)


def test_all_problems_are_reported_at_once(load: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        load('kind = "x"\nurl = "y"\n', GOCDB + "z = 1\n")

    assert len(caught.value.problems) == 3


def test_a_key_that_others_can_read_is_refused(load: Any, tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("PRIVATE KEY")
    (tmp_path / "key.pem").chmod(0o644)

    with pytest.raises(ConfigError, match="accessible to other users"):
        load(GOCDB + 'certificate_file = "key.pem"\n')


def test_only_the_table_with_the_same_url_describes_a_url(load: Any, tmp_path: Path) -> None:
    load(GOCDB + "timeout_s = 7\n")
    args = argparse.Namespace(config=str(tmp_path / "sam.toml"))

    assert feed_at(args, "gocdb", "https://goc.example.org/gocdbpi").timeout_s == 7
    for kind, url in (
        ("gocdb", "https://evil.example"),
        ("cric", "https://goc.example.org/gocdbpi"),
    ):
        assert feed_at(args, kind, url) == FeedConfig(kind, url)
    with pytest.raises(ConfigError, match="--url is not the URL of a server"):
        feed_at(args, "gocdb", "goc.example.org")


def test_credentials_of_systemd_are_for_feeds_without_a_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    (tmp_path / "sam-import-certificate").touch()
    own = FeedConfig("gocdb", "https://x", certificate_file=tmp_path / "own.pem")
    without, plain = FeedConfig("gocdb", "https://x"), FeedConfig("gocdb", "http://x")

    assert without.tls_files.certificate_file == tmp_path / "sam-import-certificate"
    assert without.tls_files.key_file is None  # the file of the certificate contains it
    assert own.tls_files.certificate_file == tmp_path / "own.pem"
    assert plain.tls_files.certificate_file is None


def test_config_show_has_the_feeds_and_their_problems(
    load: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load(GOCDB)
    command = ["config", "show", "--config", str(tmp_path / "sam.toml")]
    assert main(command) == OK
    assert "import.feed[1].url" in capsys.readouterr().out

    with pytest.raises(ConfigError):
        load(GOCDB, GOCDB)
    assert main(command) == CONFIG
    assert "gocdb appears 2 times" in capsys.readouterr().err


def test_without_feeds_there_is_nothing_to_import(
    load: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load()

    assert main(["import", "feeds", "--config", str(tmp_path / "sam.toml")]) == CONFIG

    assert "[[import.feed]]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("server", "is_warned"),
    [
        ("http://goc.example.org", True),
        ("https://goc.example.org", False),
        ("http://127.0.0.1:1", False),
    ],
)
def test_a_feed_without_tls_is_imported_with_a_warning(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    server: str,
    is_warned: bool,
) -> None:
    monkeypatch.setenv("SAM_DATABASE_URL", f"sqlite:///{tmp_path}/sam.db")
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    unreachable = 'proxy = "http://127.0.0.1:1"\ntimeout_s = 0.1\n'
    table = GOCDB.replace("https://goc.example.org", server) + unreachable
    (tmp_path / "sam.toml").write_text(f"[[import.feed]]\n{table}")

    assert main(["upgrade"]) == OK
    assert main(["import", "feeds", "--config", str(tmp_path / "sam.toml")]) == UNAVAILABLE

    assert ("use https://" in capsys.readouterr().err) == is_warned
