"""Passive check results that NRDP clients send to a door, in the database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode
from xml.etree import ElementTree

import pytest

from sam_pipeline.consumer.sources.door.dialects.forms import FORM
from sam_pipeline.schema.identity.tokens import make_token
from tests.support.consumer.door import Door, listening, new_door
from tests.support.consumer.site import Site, make_site
from tests.support.http_client import HttpAnswer

GOOD = """\
<checkresult type='service' checktype='1'><hostname>ce01.example.org</hostname>\
<servicename>{name}</servicename><state>1</state><output>slow|rtt=3s</output></checkresult>"""
BAD = "<checkresult type='host'><hostname>ce01.example.org</hostname><state>9</state></checkresult>"


class NrdpServer(NamedTuple):
    site: Site
    door: Door
    token: str

    def submit(self, *results: str, path: str = "/nrdp/CE/", **fields: str) -> HttpAnswer:
        xml = f"<?xml version='1.0'?>\n<checkresults>{''.join(results)}</checkresults>"
        form = {"token": self.token, "cmd": "submitcheck", "XMLDATA": xml, **fields}
        with self.door.client() as client:
            return client.post(path, urlencode(form).encode(), FORM)

    def names(self) -> set[str]:
        return set(self.site.column("SELECT metricName FROM metricOutput"))


@pytest.fixture(scope="module")
def nrdp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NrdpServer]:
    directory: Path = tmp_path_factory.mktemp("nrdp")
    door = new_door()
    site = make_site(directory, f"sqlite:///{directory / 'sam.db'}", [door.listen_url])
    token = make_token(directory / "tokens", "nagios1")
    table = '\n[consumer.door]\ntokens_file = "tokens"\nrequire_identity = true\n'
    site.config.write_text(site.config.read_text() + table)
    with listening(site, door):
        yield NrdpServer(site, door, token)


def texts_of(answer: HttpAnswer) -> dict[str, str]:
    """The texts of all elements of an answer in XML, by tag."""
    return {
        element.tag: element.text or "" for element in ElementTree.fromstring(answer.body).iter()
    }


def test_stored_results_are_confirmed(nrdp: NrdpServer) -> None:
    answer = nrdp.submit(GOOD.format(name="nrdp.one"), GOOD.format(name="nrdp.two"))

    texts = texts_of(answer)
    assert (answer.status, texts["status"], texts["message"]) == (200, "0", "OK")
    assert texts["output"] == "2 checks processed"
    assert {"nrdp.one", "nrdp.two"} <= nrdp.names()
    assert nrdp.site.column(
        "SELECT metricStatus || ' ' || serviceFlavour || ' ' || performanceData || ' ' || publisher"
        " FROM metricOutput WHERE metricName = 'nrdp.one'"
    ) == ["WARNING CE rtt=3s token:nagios1"]


def test_a_bad_result_is_named_and_the_others_are_stored(nrdp: NrdpServer) -> None:
    answer = nrdp.submit(BAD, GOOD.format(name="nrdp.beside"))

    texts = texts_of(answer)
    assert (answer.status, texts["status"]) == (200, "0")
    assert "2 checks processed; dead letters: bad-status" in texts["output"]
    assert "nrdp.beside" in nrdp.names()


def test_many_results_are_stored_with_one_answer(nrdp: NrdpServer) -> None:
    names = {f"nrdp.many{number}" for number in range(250)}

    answer = nrdp.submit(*(GOOD.format(name=name) for name in sorted(names)))

    assert texts_of(answer)["output"] == "250 checks processed"
    assert names <= nrdp.names()


@pytest.mark.parametrize(("token", "message"), [("", "NO TOKEN"), ("secret", "BAD TOKEN")])
def test_without_a_known_token_nothing_is_stored(
    nrdp: NrdpServer, token: str, message: str
) -> None:
    answer = nrdp.submit(GOOD.format(name="nrdp.forged"), token=token)

    texts = texts_of(answer)
    assert (answer.status, texts["status"], texts["message"]) == (401, "-1", message)
    assert "nrdp.forged" not in nrdp.names()


def test_data_that_cannot_be_read_is_answered_in_its_format(nrdp: NrdpServer) -> None:
    form = urlencode({"token": nrdp.token, "cmd": "submitcheck", "JSONDATA": "{"}).encode()
    with nrdp.door.client() as client:
        answer = client.post("/nrdp/", form, FORM)

    assert answer.status == 400
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.body)["result"]["message"] == "BAD JSON"


def test_everything_may_be_in_the_url(nrdp: NrdpServer) -> None:
    xml = f"<checkresults>{GOOD.format(name='nrdp.url')}</checkresults>"
    query = urlencode({"token": nrdp.token, "cmd": "submitcheck", "xml": xml})
    with nrdp.door.client() as client:
        answer = client.post(f"/nrdp?{query}", b"")

    assert answer.status == 200
    assert "nrdp.url" in nrdp.names()


def test_a_client_may_say_hello_without_a_token(nrdp: NrdpServer) -> None:
    with nrdp.door.client() as client:
        answer = client.post("/nrdp/", b"cmd=hello", FORM)

    assert (answer.status, texts_of(answer)["product"]) == (200, "nrdp")
