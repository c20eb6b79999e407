"""The commands of docs/feeds.md work, in the order of the page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import embedded
from tests.support.database.gocdb_files import (
    document,
    listed_site,
    nested_downtime,
    service_endpoint,
    site,
)
from tests.support.feed_server import XML, FeedServer, as_json, serving, vo_feed
from tests.support.page import Page, shell

PAGE = Page("docs/feeds.md")
COMMANDS = PAGE.texts("sh")
[TABLES] = PAGE.texts("toml")

SERVICES = {"ce": {"rcsite": "A", "flavour": "CE", "endpoint": "ce01.example.org:9619"}}
FEDERATIONS = {"CH-CERN": {"rcsites": ["A"]}}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FeedServer]:
    with serving(tmp_path, requires_certificate=False) as server:
        server.elements = {
            "get_service_endpoint": [service_endpoint()],
            "get_site": [site()],
            "get_site_list": [listed_site()],
            "get_downtime_nested_services": [
                nested_downtime(("ce01.example.org", "CE"), start=int(time.time()), end=2**31)
            ],
        }
        server.documents = {
            "/atlas/vofeed.xml": (XML, vo_feed("atlas", {"A": [("ce01", "CE")]}, "T2")),
            "/api/core/service/query/": as_json(SERVICES),
            "/api/core/federation/query/": as_json(FEDERATIONS),
        }
        yield server


def test_every_command_succeeds(tmp_path: Path, server: FeedServer) -> None:
    """The servers of the page are one of ours, which only the tables in sam.toml trust."""
    workplace = embedded(tmp_path)
    workplace.write("services.xml", document(service_endpoint()))
    workplace.write("sites.xml", document(listed_site()))
    workplace.write("vofeed.xml", vo_feed("cms", {"A": [("ce01", "CE")]}, "T2"))
    workplace.write("services.json", as_json(SERVICES)[1])
    workplace.write("federations.json", as_json(FEDERATIONS)[1])
    trust = f'ca_file = "{server.ca_file}"\n'
    others = "".join(
        f'[[import.feed]]\nkind = "{kind}"\nurl = "{url}"\n{trust}'
        for kind, url in (("gocdb", server.gocdb), ("cric", server.url))
    )

    def local(text: str) -> str:
        for name in ("goc.egi.eu", "vo.example.org", "wlcg-cric.cern.ch"):
            text = text.replace(f"https://{name}", server.url)
        return text

    once, configured, files, timer = map(local, COMMANDS)
    plain = workplace.directory / "sam.toml"
    base = plain.read_text()
    vo = f'[[import.feed]]\nkind = "vofeed"\nurl = "{server.url}/atlas/vofeed.xml"\n{trust}'
    workplace.write("sam.toml", base + others + vo)
    assert (done := shell(workplace, _one_a_second(once))).code == 0, str(done)
    tables = local(TABLES).replace("/etc/grid-security/certificates", str(server.ca_file))
    tables = tables.replace("/etc/grid-security/hostcert.pem", str(server.certificate_file))
    tables = tables.replace("/etc/grid-security/hostkey.pem", str(server.certificate_file))
    workplace.write("sam.toml", base + tables + trust)

    done = shell(workplace, *map(_one_a_second, (configured, files, timer)))

    assert done.code == 0, str(done)
    assert server.requests[-1][0].path == "/atlas/vofeed.xml"
    assert {request.client for request, _ in server.requests} == {"", "importer"}


def _one_a_second(commands: str) -> str:
    """Two snapshots of one kind never have the same time."""
    return "".join(f"{line}\nsleep 1.01\n" for line in commands.splitlines())
