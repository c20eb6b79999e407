"""A door behind systemd's socket or a full disk, and a client generated from its document."""

from __future__ import annotations

import importlib
import json
import shutil
import signal
import subprocess
import sys
from collections import deque
from io import BytesIO
from pathlib import Path

from sam_pipeline.schema.program.command import CONFIG
from sam_pipeline.schema.spool.element import serialise
from tests.services import missing
from tests.services.process import HOST, free_ports
from tests.support.builders import metric_message, metric_result
from tests.support.commands import PROGRAMS
from tests.support.conservation import consumed, key_of, numbered
from tests.support.consumer.daemon import Subscription, row_keys, site_of
from tests.support.consumer.door import KEPT, PATH, listening, new_door, servlet_site
from tests.support.consumer.door_site import door_site
from tests.support.http_client import HttpClient
from tests.support.small_disk import small_disk
from tests.support.waiting import eventually

DISK, BALLAST_BYTES, ON_THE_DISK = "2m", 1_500_000, 300
"""The disk has room for all messages, but not beside the ballast."""
PACKAGE = "generated_client"


def test_a_full_disk_behind_a_door_is_answered_at_once_and_loses_nothing(tmp_path: Path) -> None:
    door = new_door()
    servlet = servlet_site(tmp_path / "servlet", door)
    messages = numbered("disk", range(ON_THE_DISK))
    waiting = deque(messages)
    with small_disk(tmp_path / "disk", f"size={DISK}") as disk:
        spool = f"spool://{disk / 'spool'}"
        (disk / "ballast").write_bytes(bytes(BALLAST_BYTES))
        with listening(servlet, door, "--to", spool) as daemon, door.client() as client:

            def post_next() -> bool:
                """Whether the next message was kept; otherwise it remains the next one."""
                names = {"Sam_Message_Id": waiting[0].message_id}
                answer = client.post(f"{PATH}/metricOutput", waiting[0].body, **names)
                if answer.status == KEPT:
                    waiting.popleft()
                    return True
                assert answer.status == 503 and "retry-after" in answer.headers, answer
                return False

            while post_next():
                pass
            kept_on_the_full_disk = len(messages) - len(waiting)
            assert not any(post_next() for _ in range(5))
            (disk / "ballast").unlink()
            while waiting:
                eventually(post_next)
            daemon.stop()
        site = site_of(tmp_path, [spool], Subscription("/topic/door"))
        assert site.drain().code == 0
        rows = row_keys(site)

    assert 0 < kept_on_the_full_disk < len(messages)
    consumed([key_of(message.body) for message in messages], rows)


def test_the_first_sender_starts_the_daemon_that_systemd_listens_for(tmp_path: Path) -> None:
    program = shutil.which("systemd-socket-activate")
    if program is None:
        missing("systemd-socket-activate", "apt-get install systemd")
    port, other = free_ports(2)
    log = tmp_path / "log"

    def post(metric: str) -> int:
        with HttpClient(HOST, port) as client:
            body = metric_message(metric_result(metricName=metric)).body
            return client.post(f"{PATH}/metricOutput", body).status

    for listen in (f"0.0.0.0:{port}", f"{HOST}:{other}"):  # the other is of no use
        site = site_of(tmp_path, [f"listen+http://{listen}"])
        with site.config.open("a") as config:
            config.write("[consumer.door]\nrequire_identity = false\ninsecure = true\n")
        with log.open("wb") as target:
            command = [program, "-l", f"{HOST}:{port}", *site.command("run")]
            process = subprocess.Popen(command, stderr=target)
        try:
            eventually(lambda: "Listening on" in log.read_text())
            if listen.endswith(str(port)):
                assert post("first") == 200
                process.send_signal(signal.SIGHUP)
                eventually(lambda: log.read_text().count("starting with") == 2)
                assert post("after a reload") == 200
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
                assert site.rows() == 2
            else:
                with HttpClient(HOST, port) as client:
                    client._connection.connect()
                    assert process.wait(60) == CONFIG
                assert f"{HOST}:{port}" in log.read_text().splitlines()[-1]
        finally:
            process.kill()
            process.wait()


def test_a_client_generated_from_the_document_gets_typed_answers(tmp_path: Path) -> None:
    config = {
        "post_hooks": [],
        # The generator knows no lines of JSON, but how to send bytes.
        "content_type_overrides": {"application/x-ndjson": "application/octet-stream"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    with door_site(tmp_path) as door:
        url = f"http://{HOST}:{door.door.port}"
        program = PROGRAMS / "openapi-python-client"
        options = ("--meta", "none", "--url", f"{url}/v1/openapi.json")
        paths = ("--config", tmp_path / "config.json", "--output-path", tmp_path / PACKAGE)
        subprocess.run([program, "generate", *options, *paths], check=True)
        sys.path.insert(0, str(tmp_path))
        client = importlib.import_module(PACKAGE)
        post_message = importlib.import_module(f"{PACKAGE}.api.default.post_message")
        post_messages = importlib.import_module(f"{PACKAGE}.api.default.post_messages")
        file = importlib.import_module(f"{PACKAGE}.types").File
        sys.path.remove(str(tmp_path))
        results = (metric_result(metricName="org.sam.Client"), metric_result(metricStatus="FINE"))
        records = [client.models.Record.from_dict(result) for result in results]
        messages = [metric_message(metric_result(metricName=f"org.sam.{n}")) for n in range(3)]

        with client.Client(url) as connection:
            loaded, again, problem = (
                post_message.sync(
                    "metricOutput", client=connection, body=records, sam_message_id=name
                )
                for name in ("client-1", "client-1", "i" * 1000)
            )
            lines = file(BytesIO(b"".join(serialise(message) + b"\n" for message in messages)))
            many = post_messages.sync(client=connection, body=lines)

    assert isinstance(loaded, client.models.Loaded)
    assert (loaded.message_id, loaded.rows, loaded.duplicates) == ("client-1", 1, 0)
    assert [(one.number, one.reason) for one in loaded.dead_letters] == [(2, "bad-status")]
    assert (again.rows, again.duplicates) == (0, 1)
    assert isinstance(problem, client.models.Problem)
    assert (problem.status, "Sam-Message-Id" in problem.detail) == (400, True)
    outcomes = [json.loads(line) for line in many.payload.read().splitlines()]
    assert [outcome["messageId"] for outcome in outcomes] == [m.message_id for m in messages]
    assert [(outcome["status"], outcome["rows"]) for outcome in outcomes] == [(200, 1)] * 3
