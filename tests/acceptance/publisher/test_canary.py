"""No command prints, logs, stores or passes on a secret."""

from __future__ import annotations

import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from sam_pipeline.schema.records.text import write_wlcg
from tests.support.brokers.ams_stand_in import TOKEN, AmsStandIn
from tests.support.brokers.door_stand_in import DoorStandIn
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.http_stand_in import HttpStandIn, reply
from tests.support.brokers.proxy_server import ProxyServer
from tests.support.brokers.stand_in import HOST
from tests.support.builders import metric_result
from tests.support.canary import Watched, assert_hidden, stored_in

PROGRAM = Path(sys.executable).with_name("sam-publish")
TIMEOUT_S = 30.0
PASSWORD = "canary-of-the-brokers"
PROXY_PASSWORD = "canary-of-the-proxy"
SIGNING_KEY = b64encode(
    bytes.fromhex("302e020100300506032b657004220420") + b"canary-of-the-signatures-0123456"
).decode()
"""Of Ed25519, in PKCS#8."""
CANARIES = (
    PASSWORD,
    PROXY_PASSWORD,
    TOKEN,
    SIGNING_KEY,
    b64encode(f"sam:{PASSWORD}".encode()).decode(),
    b64encode(f"proxy-user:{PROXY_PASSWORD}".encode()).decode(),
)

RESULT = ("result", "--metric", "m", "--status", "OK", "--host", "ce01", "--flavour", "CE")
EVERY_COMMAND = (
    (*RESULT, "-v"),
    (*RESULT, "--json"),
    (*RESULT, "--dry-run"),
    (*RESULT, "-v", "--log-format", "json"),
    (*RESULT, "--require-broker"),
    (*RESULT, "--no-spool", "-q"),
    ("send", "results.txt", "-v"),
    # A plugin that prints all command lines and exits with CRITICAL.
    (
        "run",
        "-v",
        "--",
        "/bin/sh",
        "-c",
        "cat /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; exit 2",
    ),
    ("spool", "list", "--json"),
    ("spool", "verify"),
    ("spool", "status", "--json"),
    ("spool", "repair"),
    ("spool", "drain", "-v"),
    ("check", "-v"),
    ("check", "--json"),
    ("check", "--connect", "-v"),
    ("key", "show", "-v"),
    ("key", "show", "--json"),
)
ON_OTHER_BROKERS = (
    (*RESULT, "-v"),
    (*RESULT, "--dry-run"),
    ("check", "--connect", "--json"),
)


class Node(Watched):
    """A worker node with all secrets in variables or files."""

    def publish(self, *arguments: str) -> int:
        return self.run(PROGRAM, *arguments, timeout_s=TIMEOUT_S)

    @property
    def stored(self) -> Iterator[str]:
        """Names and contents of all files of spool and state."""
        return stored_in(self.directory / "state")


def assert_no_canary(texts: Iterable[str]) -> None:
    assert_hidden(CANARIES, texts)


def secret(path: Path, text: str) -> str:
    path.touch(mode=0o600)
    path.write_text(f"{text}\n")
    return str(path)


def node_with(
    directory: Path, source: str, brokers: Sequence[str], proxy: ProxyServer, ca: Path
) -> Node:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SAM_", "XDG_", "BEARER_")) and not name.lower().endswith("_proxy")
    }
    settings = {"brokers": ",".join(brokers), "ca_file": str(ca), "timeout_s": "2", "user": "sam"}
    environment = {**kept, "HOME": str(directory), "STATE_DIRECTORY": str(directory / "state")}
    pem = f"-----BEGIN PRIVATE KEY-----\n{SIGNING_KEY}\n-----END PRIVATE KEY-----"
    settings["signing_key_file"] = secret(directory / "canary.pem", pem)
    if source == "variables":
        settings.update(password=PASSWORD, token=TOKEN)
        login = proxy.url_with(f"proxy-user:{PROXY_PASSWORD}")
        environment.update(http_proxy=login, https_proxy=login)
    else:
        settings["password_file"] = secret(directory / "password", PASSWORD)
        settings["token_file"] = secret(directory / "token", TOKEN)
        settings["proxy"] = proxy.url_with("proxy-user")
        settings["proxy_password_file"] = secret(directory / "proxy-password", PROXY_PASSWORD)
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
        node = node_with(tmp_path, source, [stomp.url], proxy, ams.write_ca(tmp_path / "ca.pem"))

        codes = {" ".join(command): node.publish(*command) for command in EVERY_COMMAND}
        for element in (node.directory / "state" / "spool").glob("*/*"):
            assert node.publish("spool", "show", "/".join(element.parts[-2:]), "-v") == 0
        for url in others:
            for command in ON_OTHER_BROKERS:
                node.publish(*command, "--broker", url)

    assert_no_canary(node.seen)
    assert_no_canary(node.stored)
    # The secrets were actually used.
    assert [text for text, code in codes.items() if code not in (0, 2, 65, 69, 75, 78)] == []
    assert codes[" ".join(EVERY_COMMAND[0])] == 0
    assert codes["check --connect -v"] == (0 if fate == "succeeds" else 78)
    assert any("sam-publish" in text for text in node.seen)
    assert all("proxy-authorization" in headers for headers in proxy.headers)
    if "proxy" not in fate:
        passwords = {login.headers.get("passcode") for login in stomp.logins}
        # `check --connect` also tries whether it may publish without a login.
        assert passwords == ({PASSWORD, None} if fate == "succeeds" else {PASSWORD})
        assert {request.headers["authorization"] for request in rest.asked} == {
            f"Basic {CANARIES[4]}"
        }
        assert {request.headers["x-api-key"] for request in ams.asked} == {TOKEN}
        tokens = {request.headers.get("authorization") for request in door.asked}
        bearer = f"Bearer {TOKEN}"
        assert tokens == ({bearer, None} if fate == "succeeds" else {bearer})


BUG = """\
import sys
from sam_pipeline.publisher.brokers.stomp import transport as stomp_transport
from sam_pipeline.publisher.cli import main

def bug(address, config, deadline):
    login, token = config.login(address.broker), config.token(address.broker)
    proxy = config.proxy_for(address.broker)
    raise RuntimeError(f"{address!r} {config!r} {config} {proxy!r} {proxy} {len(login[1] + token)}")

stomp_transport.connect = bug
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("source", ["variables", "files"])
def test_a_traceback_shows_no_secret(tmp_path: Path, source: str) -> None:
    with ProxyServer() as proxy:
        node = node_with(tmp_path, source, ["stomp+ssl://msg.invalid"], proxy, tmp_path)
        done = subprocess.run(
            [sys.executable, "-c", BUG, *RESULT, "-v"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            cwd=tmp_path,
            env=node.environment,
            check=False,
        )

    assert done.returncode == 70
    assert "Traceback" in done.stderr
    assert "RuntimeError: BrokerAddress(" in done.stderr
    assert proxy.url.removeprefix("http://") in done.stderr
    assert_no_canary([done.stdout, done.stderr, *node.stored])


@pytest.mark.parametrize(
    "line",
    [
        f'brokers = "stomp://sam:{PASSWORD}@msg.example.org"',
        f'brokers = ["stomp://sam:{PASSWORD}@msg.example.org"]',
        f'proxy = ["http://u:{PASSWORD}@p:3128"]',
        f'proxy = "http://u:{PASSWORD}@p:3128"',
        f'password = "{PASSWORD}"',
        f"password = {PASSWORD}",
        f'token = "{PASSWORD}"',
    ],
)
def test_a_misplaced_password_is_refused_and_not_repeated(tmp_path: Path, line: str) -> None:
    (tmp_path / "sam.toml").write_text(f"[publisher]\n{line}\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SAM_")}
    node = Node(tmp_path, {**kept, "STATE_DIRECTORY": str(tmp_path / "state")})

    codes = [node.publish("check", "--json"), node.publish(*RESULT, "-v")]

    assert codes == [78, 78]
    assert_no_canary(node.seen)
