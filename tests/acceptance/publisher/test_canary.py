"""No command prints, logs, stores or passes on a secret."""

from __future__ import annotations

import os
from base64 import b64encode
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import pytest

from sam_pipeline.publisher.brokers.stomp import StompTransport
from sam_pipeline.publisher.brokers.tokens import token_for
from sam_pipeline.schema.net.broker import Target
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.records.text import write_wlcg
from tests.support.brokers.ams_stand_in import TOKEN, AmsStandIn
from tests.support.brokers.door_stand_in import DoorStandIn
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.http_stand_in import HttpStandIn, reply
from tests.support.brokers.proxy_server import ProxyServer
from tests.support.brokers.stand_in import HOST
from tests.support.builders import metric_result
from tests.support.canary import Watched, assert_hidden, stored_in
from tests.support.commands import PROGRAMS
from tests.support.invoke import invoke
from tests.support.publishing import RESULT, secret

PASSWORD = "canary-of-the-brokers"
PROXY_PASSWORD = "canary-of-the-proxy"
SIGNING_KEY = b64encode(
    bytes.fromhex("302e020100300506032b657004220420") + b"canary-of-the-signatures-0123456"
).decode()
"""Of Ed25519, in PKCS#8."""
LOGIN, PROXY_LOGIN = (
    b64encode(login.encode()).decode()
    for login in (f"sam:{PASSWORD}", f"proxy-user:{PROXY_PASSWORD}")
)
CANARIES = (PASSWORD, PROXY_PASSWORD, TOKEN, SIGNING_KEY, LOGIN, PROXY_LOGIN)

EVERY_COMMAND = (
    (*RESULT, "-v"),
    (*RESULT, "--json"),
    (*RESULT, "--dry-run"),
    (*RESULT, "-v", "--log-format", "json"),
    (*RESULT, "--no-spool", "-q"),
    ("send", "results.txt", "-v"),
    *(("spool", *action.split()) for action in ("list --json", "verify", "status --json")),
    *(("spool", *action.split()) for action in ("repair", "drain -v")),
    *(("check", *options.split()) for options in ("-v", "--json", "--connect -v")),
    *(("key", "show", option) for option in ("-v", "--json")),
)
ON_OTHER_BROKERS = ((*RESULT, "-v"), (*RESULT, "--dry-run"), ("check", "--connect", "--json"))
ALL_COMMAND_LINES = "cat /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; exit 2"


class Node(Watched):
    """A worker node; what its commands print is in `seen`."""

    def publish(self, *arguments: str) -> int:
        answer = invoke("sam-publish", *arguments, cwd=self.directory, env=self.environment)
        assert "Traceback" not in answer.err, answer.err
        self.seen += [answer.out, answer.err]
        return answer.code


def node_with(directory: Path, source: str, proxy: ProxyServer, **settings: str) -> Node:
    """A worker node with all secrets in variables or files."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SAM_", "XDG_", "BEARER_")) and not name.lower().endswith("_proxy")
    }
    environment = {**kept, "HOME": str(directory), "STATE_DIRECTORY": str(directory / "state")}
    pem = f"-----BEGIN PRIVATE KEY-----\n{SIGNING_KEY}\n-----END PRIVATE KEY-----"
    settings |= {"timeout": "2s", "user": "sam"}
    settings["signing_key_file"] = str(secret(directory / "canary.pem", pem))
    if source == "variables":
        settings.update(password=PASSWORD, token=TOKEN)
        login = proxy.url_with(f"proxy-user:{PROXY_PASSWORD}")
        environment.update(http_proxy=login, https_proxy=login)
    else:
        settings["proxy"] = proxy.url_with("proxy-user")
        for name, text in (
            ("password_file", PASSWORD),
            ("token_file", TOKEN),
            ("proxy_password_file", PROXY_PASSWORD),
        ):
            settings[name] = str(secret(directory / name, text))
    variables = {f"SAM_PUBLISHER_{key.upper()}": value for key, value in settings.items()}
    (directory / "results.txt").write_text(write_wlcg(metric_result()))
    return Node(directory, {**environment, **variables})


@pytest.mark.parametrize("fate", ["succeeds", "refused by the proxy", "refused by the broker"])
@pytest.mark.parametrize("source", ["variables", "files"])
def test_no_command_shows_a_secret(tmp_path: Path, source: str, fate: str) -> None:
    proxy = ProxyServer("proxy-user", "other" if "proxy" in fate else PROXY_PASSWORD)
    refused = "broker" in fate
    stomp = FakeBroker(refuses_login="bad login" if refused else "")
    sent = reply(401) if refused else reply(200, b"Message sent", messageID="ID:1")
    rest = HttpStandIn(lambda request: sent)
    ams = AmsStandIn(topics=() if refused else ("grid-probe-metricOutput",))
    door = DoorStandIn(token="other" if refused else TOKEN)
    with ExitStack() as stack:
        for server in (proxy, stomp, rest, ams, door):
            stack.enter_context(server)
        others = (f"activemq-rest+http://{HOST}:{rest.port}/api/message", ams.url, door.url)
        ca = str(ams.write_ca(tmp_path / "ca.pem"))
        node = node_with(tmp_path, source, proxy, brokers=stomp.url, ca_file=ca)

        codes = {" ".join(command): node.publish(*command) for command in EVERY_COMMAND}
        for element in (node.directory / "state" / "spool").glob("*/*"):
            assert node.publish("spool", "show", "/".join(element.parts[-2:]), "-v") == 0
        for url in others:
            for command in ON_OTHER_BROKERS:
                node.publish(*command, "--broker", url)
        # A plugin that prints all command lines, and whose process is watched.
        run = (PROGRAMS / "sam-publish", "run", "-v", "--", "/bin/sh", "-c", ALL_COMMAND_LINES)
        assert node.run(*run) == 2

    assert_hidden(CANARIES, node.seen)
    assert_hidden(CANARIES, stored_in(node.directory / "state"))
    # The secrets were actually used.
    assert [text for text, code in codes.items() if code not in (0, 2, 65, 69, 75, 78)] == []
    assert codes[" ".join(EVERY_COMMAND[0])] == 0
    assert codes["check --connect -v"] == (0 if fate == "succeeds" else 78)
    assert all("proxy-authorization" in headers for headers in proxy.headers)
    if "proxy" in fate:
        return
    # `check --connect` also tries whether it may publish without a login.
    nobody = {None} if fate == "succeeds" else set()
    assert {login.headers.get("passcode") for login in stomp.logins} == {PASSWORD, *nobody}
    assert {request.headers["authorization"] for request in rest.asked} == {f"Basic {LOGIN}"}
    assert {request.headers["x-api-key"] for request in ams.asked} == {TOKEN}
    tokens = {request.headers.get("authorization") for request in door.asked}
    assert tokens == {f"Bearer {TOKEN}", *nobody}


@pytest.mark.parametrize("source", ["variables", "files"])
def test_a_traceback_shows_no_secret(
    tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(_: object, target: Target, deadline: Deadline) -> NoReturn:
        login, token = target.login(), token_for(target)
        proxy = target.find_proxy()
        used = len(f"{login[1]}{token}")
        raise RuntimeError(f"{target!r} {target} {proxy!r} {proxy} {used}")

    monkeypatch.setattr(StompTransport, "__init__", bug)
    with ProxyServer() as proxy:
        node = node_with(tmp_path, source, proxy, brokers="stomp+ssl://msg.invalid")
        done = invoke("sam-publish", *RESULT, "-v", cwd=tmp_path, env=node.environment)

    assert done.code == 70
    assert "Traceback" in done.err
    assert "RuntimeError: Target(" in done.err
    assert proxy.url.removeprefix("http://") in done.err
    assert_hidden(CANARIES, [done.out, done.err, *stored_in(tmp_path / "state")])
