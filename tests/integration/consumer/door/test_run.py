"""`sam-consume run` with a door: drains, status, NRDP clients, and the extra that it needs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlencode
from xml.etree import ElementTree

from sam_pipeline.consumer.core.drain import SILENCE_S
from sam_pipeline.consumer.sources.door.dialects.forms import FORM
from sam_pipeline.schema.identity.tokens import make_token
from sam_pipeline.schema.program.command import CONFIG, OK
from tests.services.process import port_is_open
from tests.support.brokers.http_stand_in import HttpStandIn
from tests.support.consumer.bad_requests import GOOD, PATH, post
from tests.support.consumer.daemon import site_of
from tests.support.consumer.door import new_door
from tests.support.consumer.door_site import door_site
from tests.support.consumer.site import Site
from tests.support.http_client import HttpAnswer
from tests.support.raw_http import request
from tests.support.waiting import eventually

WITHOUT_AIOHTTP = """
import sys
sys.modules["aiohttp"] = None
from sam_pipeline.consumer.cli import main
sys.exit(main(sys.argv[1:]))
"""
RESULT = """\
<checkresult type='service'><hostname>ce01.example.org</hostname>\
<servicename>{}</servicename><state>1</state><output>slow|rtt=3s</output></checkresult>"""
BAD = "<checkresult type='host'><hostname>ce01.example.org</hostname><state>9</state></checkresult>"


def without_aiohttp(site: Site, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_AIOHTTP, "--config", str(site.config), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_a_drain_takes_messages_until_none_has_arrived_for_a_while(tmp_path: Path) -> None:
    door = new_door()
    site = site_of(tmp_path, [door.listen_url], name=door.name)
    answers: list[int] = []

    def send() -> None:
        eventually(lambda: port_is_open(door.port))
        with door.client() as client:
            answers.extend(client.post(PATH, GOOD).status for _ in range(2))

    sender = threading.Thread(target=send)
    sender.start()
    done = subprocess.run(site.command("run", "--drain", "--json"), stdout=subprocess.PIPE)
    sender.join(SILENCE_S)

    tally = json.loads(done.stdout)
    assert (done.returncode, answers) == (OK, [200, 200])
    assert (tally["rows"], tally["duplicates"]) == (1, 1)


def test_status_counts_requests_and_connections(tmp_path: Path) -> None:
    with door_site(tmp_path) as site, site.connect() as connection:
        connection.send(post() + request("GET", "/nothing") + request("GET", "/healthz"))
        for _ in range(3):
            connection.answer()

        eventually(lambda: '"connections": 1' in site.site.run("status", "--json").stdout)
        eventually(lambda: site.site.status()["requests"] == {"200": 2, "404": 1})
        assert "3 requests (200: 2, 404: 1), 1 connection\n" in site.site.run("status").stdout


def test_a_door_without_its_library_is_one_clear_line(tmp_path: Path) -> None:
    site = site_of(tmp_path, [new_door().listen_url], name="door")

    for arguments in (["run"], ["check"]):
        done = without_aiohttp(site, *arguments)
        assert done.returncode == CONFIG
        lines = [line for line in done.stderr.splitlines() if "aiohttp" in line]
        assert len(lines) == 1 and "[door]" in lines[0]

    spool = site_of(tmp_path, [f"spool://{tmp_path}/in"])
    assert without_aiohttp(spool, "run", "--drain").returncode == OK


def test_a_port_of_another_program_is_a_problem(tmp_path: Path) -> None:
    with HttpStandIn() as other:
        url = f"listen+http://127.0.0.1:{other.port}"
        (problem,) = site_of(tmp_path, [url]).json("check", code=CONFIG)["problems"]

    assert url in problem
    assert "in use" in problem


def test_nrdp_clients_are_answered_when_their_results_are_stored(tmp_path: Path) -> None:
    token = make_token(tmp_path / "tokens", "nagios1")
    with door_site(tmp_path, tokens_file="tokens", require_identity=True) as door:

        def submit(path: str = "/nrdp/CE/", **fields: str) -> HttpAnswer:
            form = {"token": token, "cmd": "submitcheck", **fields}
            with door.door.client() as client:
                if path.endswith("?"):
                    return client.post(path + urlencode(form), b"")
                return client.post(path, urlencode(form).encode(), FORM)

        def texts(answer: HttpAnswer) -> dict[str, str | None]:
            return {
                element.tag: element.text for element in ElementTree.fromstring(answer.body).iter()
            }

        many = [RESULT.format(f"nrdp.many{number}") for number in range(250)]
        xml = f"<checkresults>{''.join(many)}{BAD}</checkresults>"
        loaded = submit(XMLDATA=xml)
        by_url = submit("/nrdp?", xml=f"<checkresults>{RESULT.format('nrdp.url')}</checkresults>")
        forged = [submit(XMLDATA=xml, token=token) for token in ("", "secret")]
        unread = submit("/nrdp/", JSONDATA="{")
        hello = submit("/nrdp/", cmd="hello", token="")
        query = (
            "SELECT metricStatus || ' ' || serviceFlavour || ' ' || performanceData || ' ' ||"
            " publisher FROM metricOutput WHERE metricName = 'nrdp.many7'"
        )

        assert (loaded.status, texts(loaded)["status"]) == (200, "0")
        assert "251 checks processed; dead letters: bad-status" in str(texts(loaded)["output"])
        assert (by_url.status, door.rows("nrdp.%"), door.letters()) == (200, 251, 1)
        assert door.site.column(query) == ["WARNING CE rtt=3s token:nagios1"]
        assert [(one.status, texts(one)["message"]) for one in forged] == [
            *((401, "NO TOKEN"), (401, "BAD TOKEN"))
        ]
        assert (unread.status, unread.document["result"]["message"]) == (400, "BAD JSON")
        assert (hello.status, texts(hello)["product"]) == (200, "nrdp")
