"""A private RabbitMQ: own node, own epmd, STOMP and management ports, logins `sam` and anonymous.

with running_rabbitmq() as broker:
    publish_to(broker.url)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

from tests.services import ServiceMissing
from tests.services.broker import (
    AS_USUAL,
    PASSWORD,
    USER,
    Rules,
    StompServer,
    takes_logins,
)
from tests.services.process import HOST, ServerProcess, free_ports, port_is_open, running

HOW_TO_GET_IT = "apt-get install rabbitmq-server"
# Not the program on PATH: Debian's wrapper changes the account and the directory.
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
CONTROL = SERVER.with_name("rabbitmqctl")

FREE_LIMIT, HUGE = "50MB", str(10**15)

CONFIG = """\
listeners.tcp = none
stomp.listeners.tcp.1 = {host}:{stomp_port}
management.tcp.ip = {host}
management.tcp.port = {management_port}
default_user = {user}
default_pass = {password}
disk_free_limit.absolute = {free_limit}
log.console = true
log.console.level = info
log.file = false
stomp.default_user = {user}
stomp.default_pass = {password}
"""

TLS = """\
stomp.listeners.ssl.1 = {host}:{tls_port}
ssl_options.cacertfile = {ca_file}
ssl_options.certfile = {certificate_file}
ssl_options.keyfile = {key_file}
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
"""
# RabbitMQ checks acknowledgement timeouts once per tick, by default every minute.
ACK_TIMEOUT = "[{{rabbit, [{{consumer_timeout, {ms}}}, {{channel_tick_interval, 500}}]}}].\n"


@dataclass(frozen=True)
class RabbitMQRules(Rules):
    """The settings that only this broker has."""

    ack_timeout_s: float = 0.0
    """A consumer that has a message for so long without an ack is dismissed; 0: after 30 min."""


@dataclass(frozen=True, kw_only=True)
class RabbitMQServer(StompServer):
    management_port: int
    epmd: ServerProcess
    virtual_host: str = "/"

    @property
    def processes(self) -> Sequence[ServerProcess]:
        return (self.epmd, self.process)

    @property
    def management_url(self) -> str:
        return f"http://{self.host}:{self.management_port}"

    @property
    def api_url(self) -> str:
        """The publisher's REST URL for the virtual host `/`."""
        return f"rabbitmq-api+http://{self.user}@{self.host}:{self.management_port}/%2F/amq.topic"

    @contextmanager
    def full(self) -> Iterator[None]:
        """Inside the block the disk alarm is set, so that it accepts no SEND."""
        self._control("set_disk_free_limit", HUGE)
        try:
            yield
        finally:
            self._control("set_disk_free_limit", FREE_LIMIT)

    def add_user(self, name: str, password: str, *, topics_read: str, topics_written: str) -> None:
        """A user with all rights, except on topics, which the two patterns limit."""
        host = quote(self.virtual_host, safe="")
        rule = {"exchange": "amq.topic", "write": topics_written, "read": topics_read}
        self._put(f"users/{name}", {"password": password, "tags": ""})
        self._put(f"permissions/{host}/{name}", {"configure": ".*", "write": ".*", "read": ".*"})
        self._put(f"topic-permissions/{host}/{name}", rule)

    def add_virtual_host(self, name: str, user: str = "", password: str = "") -> None:
        """A virtual host where our user has all rights, or a new user, who has none elsewhere."""
        host = quote(name, safe="")
        self._put(f"vhosts/{host}", {})
        if user:
            self._put(f"users/{user}", {"password": password, "tags": ""})
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        self._put(f"permissions/{host}/{user or self.user}", rights)

    def queue_of(self, virtual_host: str, name: str) -> Any:
        """The facts about a queue of a virtual host; raises HTTPError if it does not exist."""
        return self._api(f"queues/{quote(virtual_host, safe='')}/{name}")

    def delete_queue(self, name: str) -> None:
        """Delete a queue of the virtual host `/`."""
        self._control("delete_queue", name)

    def _control(self, *arguments: str) -> None:
        subprocess.run(
            [str(CONTROL), *arguments], env=self.process.env, check=True, capture_output=True
        )

    def queues(self) -> set[str]:
        """The names of all queues, those of subscriptions among them."""
        return {queue["name"] for queue in self._api("queues?columns=name")}

    def _put(self, path: str, document: Mapping[str, str]) -> None:
        self._api(path, json.dumps(document).encode(), method="PUT")

    def _api(self, path: str, body: bytes | None = None, method: str = "GET") -> Any:
        login = b64encode(f"{self.user}:{self.password}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        request = Request(f"{self.management_url}/api/{path}", body, headers, method=method)
        with urlopen(request, timeout=10) as answer:
            return json.loads(answer.read() or "null")


def running_rabbitmq(rules: Rules = AS_USUAL) -> AbstractContextManager[RabbitMQServer]:
    return running("rabbitmq", lambda directory: _server(directory, rules))


def _server(directory: Path, rules: Rules) -> RabbitMQServer:
    if not SERVER.exists() or shutil.which("epmd") is None:
        raise ServiceMissing("RabbitMQ", HOW_TO_GET_IT)
    stomp_port, tls_port, management_port, dist_port, epmd_port = free_ports(5)
    ports = {"stomp_port": stomp_port, "tls_port": tls_port, "management_port": management_port}
    names = {"host": HOST, "user": USER, "password": PASSWORD, "free_limit": FREE_LIMIT, **ports}
    config = CONFIG
    if rules.certificate:
        config, names = config + TLS, {**names, **vars(rules.certificate)}
    (directory / "rabbitmq.conf").write_text(config.format(**names))
    # Erlang terms for the settings that rabbitmq.conf does not have.
    limit_s = rules.ack_timeout_s if isinstance(rules, RabbitMQRules) else 0
    advanced = ACK_TIMEOUT.format(ms=int(limit_s * 1000)) if limit_s else "[].\n"
    (directory / "advanced.config").write_text(advanced)
    (directory / "enabled_plugins").write_text("[rabbitmq_management,rabbitmq_stomp].\n")
    environment = node_environment(directory, dist_port, epmd_port)

    def ready() -> bool:
        return takes_logins(stomp_port, rules, tls_port) and port_is_open(management_port)

    return RabbitMQServer(
        port=stomp_port,
        tls_port=tls_port,
        management_port=management_port,
        directory=directory,
        process=ServerProcess([str(SERVER)], directory / "log", ready, environment, directory),
        epmd=epmd(directory, epmd_port, environment),
    )


def epmd(directory: Path, port: int, environment: Mapping[str, str]) -> ServerProcess:
    """The node would start epmd too, but as a daemon that nothing stops."""
    command = ["epmd", "-port", str(port), "-address", HOST]
    ready = partial(port_is_open, port)
    return ServerProcess(command, directory / "epmd.log", ready, environment, directory)


def node_environment(directory: Path, dist_port: int, epmd_port: int) -> dict[str, str]:
    """The variables of a node whose files are all in the directory."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),  # the Erlang cookie
        "LC_ALL": "C.UTF-8",
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": HOST,
        "RABBITMQ_NODENAME": f"sam-{epmd_port}@localhost",
        "RABBITMQ_DIST_PORT": str(dist_port),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "logs"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(directory / "advanced.config"),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "no-such-file"),
        # Busy-waiting schedulers would take both cores from the tests.
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
    }
