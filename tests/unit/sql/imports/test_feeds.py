"""The tables [[import.feed]], the documents that a feed consists of, and the pages of GOCDB."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.program.command import CONFIG, UNAVAILABLE
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_changes import Window
from sam_pipeline.sql.imports.http.documents import documents_of, next_page
from sam_pipeline.sql.imports.http.feed_config import FeedConfig, feed_at, load_feeds
from tests.support.database.gocdb_files import service_endpoint, write
from tests.support.database.sam_db import SamDb

URL = "https://goc.example.org/gocdbpi"
GOCDB = f'kind = "gocdb"\nurl = "{URL}"\n'
VO = 'kind = "vofeed"\nurl = "https://vo.example.org/feed.xml"\n'
PUBLIC = f"{URL}/public/?method=get_service_endpoint"
WINDOW = Window("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")


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
    assert load() == ()


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('kind = "gocbd"\nurl = "https://x"\n', "kind: expected one of gocdb, vofeed, cric"),
        ('kind = "gocdb"\n', "url is missing"),
        ('kind = "gocdb"\nurl = "ftp://x"\n', "is not the URL of a server"),
        ('kind = "gocdb"\nurl = "https://x:y"\n', "is not a URL"),
        ('kind = "gocdb"\nurl = "https://jane@x"\n', "must not contain a login"),
        ('kind = "gocdb"\nurl = "https://x#y"\n', "must not contain a fragment"),
        (GOCDB + "urll = 1\n", "unknown key urll (did you mean url"),
        (GOCDB + 'read = ["endpoint"]\n', "endpoint: expected endpoints, groups, downtimes"),
        (GOCDB.replace("gocdb", "cric", 1) + 'read = ["downtimes"]\n', "cric has no downtimes"),
        (GOCDB + "timeout_s = 0\n", "expected more than 0"),
        (GOCDB + "max_bytes = -1\n", "expected more than 0"),
        (GOCDB + 'ca_file = "/nowhere"\n', "/nowhere: no such file"),
        (GOCDB + 'proxy = "http://u:p@x"\n', "use proxy_password_file"),
        (GOCDB + 'key_file = "key.pem"\n', "key_file without certificate_file"),
        (GOCDB.replace("https", "http") + 'certificate_file = "key.pem"\n', "used with http://"),
        (GOCDB + 'certificate_file = "open.pem"\n', "accessible to other users"),
        (f"{GOCDB}[[import.feed]]\n{GOCDB.replace('goc.', 'goc2.')}", "gocdb appears 2 times"),
        (f"{VO}[[import.feed]]\n{VO}", "feed.xml appears 2 times"),
    ],
)
def test_each_problem_is_reported(load: Any, tmp_path: Path, table: str, problem: str) -> None:
    for name, mode in (("key.pem", 0o600), ("open.pem", 0o644)):
        (tmp_path / name).write_text("PRIVATE KEY")
        (tmp_path / name).chmod(mode)

    with pytest.raises(ConfigError) as caught:
        load(table)

    assert problem in str(caught.value)
    with pytest.raises(ConfigError) as several:
        load('kind = "x"\nurl = "y"\n', GOCDB + "z = 1\n")
    assert len(several.value.problems) == 3


def test_only_the_table_with_the_same_url_describes_a_url(load: Any, tmp_path: Path) -> None:
    load(GOCDB + "timeout_s = 7\n")
    args = argparse.Namespace(config=str(tmp_path / "sam.toml"))

    assert feed_at(args, "gocdb", URL).timeout_s == 7
    for kind, url in (("gocdb", "https://evil.example"), ("cric", URL)):
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


@pytest.mark.parametrize(
    ("server", "is_warned"),
    [("http://goc.example.org", True), (URL, False), ("http://127.0.0.1:1", False)],
)
def test_a_feed_without_tls_is_imported_with_a_warning(
    load: Any, database: Path, sam_db: SamDb, server: str, is_warned: bool
) -> None:
    load(f'kind = "gocdb"\nurl = "{server}"\nproxy = "http://127.0.0.1:1"\ntimeout_s = 0.1\n')

    done = sam_db("import", "feeds", "--config", "sam.toml")

    assert (done.code, "use https://" in done.err) == (UNAVAILABLE, is_warned)
    load()
    assert sam_db("import", "feeds", "--config", "sam.toml").code == CONFIG


def urls(kind: str, url: str, **settings: Any) -> list[str]:
    return [document.url for document in documents_of(FeedConfig(kind, url, **settings), WINDOW)]


def test_documents_depend_on_certificate_and_kind(tmp_path: Path) -> None:
    settings = {"certificate_file": tmp_path, "read": ("groups",)}
    cric, vo = "https://cric.example.org", "https://vo.example.org/feed.xml?v=1"
    days = "windowstart=2026-11-01&windowend=2026-12-01"

    for url in (URL, f"{URL}/", f"{URL}/public/"):
        assert urls("gocdb", url) == [
            f"{PUBLIC}&next_cursor=0",
            f"{URL}/public/?method=get_site_list",
            f"{URL}/public/?method=get_downtime_nested_services&{days}&next_cursor=0",
        ]
    assert urls("gocdb", f"{URL}?scope=EGI,wlcg&scope_match=any", **settings) == [
        f"{URL}/private/?method=get_site&scope=EGI%2Cwlcg&scope_match=any&next_cursor=0"
    ]
    queries = [f"{cric}/api/core/{name}/query/?json" for name in ("service", "federation")]
    assert (urls("cric", f"{cric}/"), urls("vofeed", vo)) == (queries, [vo])


def page(elements: int, link: str | None, count: str = "", size: str = "") -> str:
    href = f'<link rel="next" href="{link}"/>' if link is not None else ""
    counts = f"<count>{count}</count><max_page_size>{size}</max_page_size>"
    services = "".join(service_endpoint(host=f"h{number}") for number in range(elements))
    return f"<results><meta>{href}{counts}</meta>{services}</results>"


INSIDE = "http://inside.invalid:8080/gocdbpi/x?method=other&amp;next_cursor=117"
NEXT = "/?next_cursor=7"


@pytest.mark.parametrize(
    ("text", "seen", "outcome"),
    [
        (page(2, INSIDE, "2", "2"), (), f"{PUBLIC}&next_cursor=117"),  # only the cursor is used
        ("<results/>", (), None),  # a page that is not full is the last
        (page(0, None), (), None),
        (page(3, NEXT, "3", "100"), (), None),
        (page(1, NEXT, "2", "2"), (), BadInput("1 of 2 elements")),
        (page(2, None, "2", "2"), (), BadInput("next_cursor=''")),
        (page(2, "/?other=7", "2", "2"), (), BadInput("next_cursor=''")),
        (page(2, NEXT, "2", "2"), ("7",), BadInput("next_cursor='7'")),
        ("<results/>", ("7",), BadInput("without <meta>")),
    ],
)
def test_a_full_page_leads_to_the_next_and_half_a_page_is_refused(
    tmp_path: Path, text: str, seen: tuple[str, ...], outcome: str | BadInput | None
) -> None:
    path = write(tmp_path / "page.xml", text)

    if isinstance(outcome, BadInput):
        with pytest.raises(BadInput, match=str(outcome)):
            next_page(f"{PUBLIC}&next_cursor=0", path, set(seen))
    else:
        assert next_page(f"{PUBLIC}&next_cursor=0", path, set(seen)) == outcome
