"""The brokers as `deploy/brokers/` configures them: its files, and the secrets of one host.

    with running_deployed("artemis", add_secrets) as broker:
        publish_to(broker.tls_url)

Only ports, host and directories differ, by the brokers' own variables.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from tests.services import ServiceMissing, activemq, artemis, rabbitmq
from tests.services.broker import LOG4J, StompServer, java
from tests.services.process import HOST, ServerProcess, free_ports, port_is_open, running

DEPLOY = Path(__file__).parents[2] / "deploy" / "brokers"
PASSWORDS = {"nagios2": "nagios2-secret", "site-a": "site-a-secret"}
"""The users who have a password; those with a certificate are in the files of `deploy/`."""

SCAN_MS = 1000

AddSecrets = Callable[[str, Path], None]
"""Adds the certificates of the host for a kind of broker, in the directory where they belong."""


def running_deployed(kind: str, add_secrets: AddSecrets) -> AbstractContextManager[StompServer]:
    """A broker of one of the KINDS; only ActiveMQ has a port without TLS."""
    return running(f"deployed-{kind}", lambda directory: KINDS[kind](directory, add_secrets))


def _activemq(directory: Path, add_secrets: AddSecrets) -> StompServer:
    conf = _configured("activemq", directory)
    add_secrets("activemq", conf)
    _write_users(conf)
    return _java(
        directory,
        *("-cp", f"{activemq.fetch()}/*", "org.apache.activemq.console.Main"),
        *("start", f"xbean:file:{conf}/activemq.xml"),
        activemq_home=directory,
        activemq_base=directory,
        activemq_conf=conf,
        activemq_data=directory / "data",
    )


def _artemis(directory: Path, add_secrets: AddSecrets) -> StompServer:
    conf, home = _configured("artemis", directory), artemis.fetch()
    # It looks for queues to remove each second, not each half minute.
    broker = conf / "broker.xml"
    settings = f"<address-queue-scan-period>{SCAN_MS}</address-queue-scan-period>"
    broker.write_text(broker.read_text().replace("<acceptors>", f"{settings}<acceptors>", 1))
    add_secrets("artemis", conf)
    _write_users(conf)
    # `artemis create` writes one, for JMX.
    management = '<management-context xmlns="http://activemq.apache.org/schema"/>\n'
    (conf / "management.xml").write_text(management)
    return _java(
        directory,
        *("-cp", f"{home}/lib/artemis-boot.jar", artemis.BOOT, "run"),
        artemis_home=home,
        artemis_instance=directory,
        artemis_instance_etc=conf,
        data_dir=directory / "data",
    )


def _rabbitmq(directory: Path, add_secrets: AddSecrets) -> StompServer:
    if not rabbitmq.SERVER.exists() or shutil.which("epmd") is None:
        raise ServiceMissing("RabbitMQ", rabbitmq.HOW_TO_GET_IT)
    conf, log = _configured("rabbitmq", directory), directory / "log"
    add_secrets("rabbitmq", directory)
    rights = json.loads((conf / "definitions" / "10-certificates.json").read_text())
    twins = {"nagios2": "CN=nagios1.", "site-a": "CN=consumer."}
    logins = {
        key: [
            {**right, "user": user}
            for user, twin in twins.items()
            for right in rights[key]
            if right["user"].startswith(twin)
        ]
        for key in ("permissions", "topic_permissions")
    }
    users = [{"name": name, "password": word, "tags": ""} for name, word in PASSWORDS.items()]
    document = json.dumps({"users": users, **logins})
    (conf / "definitions" / "20-logins.json").write_text(document)
    port, dist_port, epmd_port = free_ports(3)
    (directory / "host.conf").write_text(
        f"stomp.listeners.ssl.1 = {HOST}:{port}\n"
        f"load_definitions = {conf / 'definitions'}\n"
        "log.console = true\nlog.file = false\n"
    )
    environment = rabbitmq.node_environment(directory, dist_port, epmd_port) | {
        "RABBITMQ_CONFIG_FILE": str(conf / "rabbitmq.conf"),
        "RABBITMQ_CONFIG_FILES": str(directory / "host.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(conf / "advanced.config"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(conf / "enabled_plugins"),
    }
    return rabbitmq.RabbitMQServer(
        port=0,
        tls_port=port,
        management_port=0,
        directory=directory,
        process=ServerProcess(
            [str(rabbitmq.SERVER)],
            log,
            lambda: b"Server startup complete" in log.read_bytes(),
            environment,
            directory,
        ),
        epmd=rabbitmq.epmd(directory, epmd_port, environment),
    )


KINDS: Mapping[str, Callable[[Path, AddSecrets], StompServer]] = {
    "activemq": _activemq,
    "artemis": _artemis,
    "rabbitmq": _rabbitmq,
}


def _configured(kind: str, directory: Path) -> Path:
    """A copy of the files of `deploy/`."""
    conf = directory / "etc"
    shutil.copytree(DEPLOY / kind, conf)
    return conf


def _write_users(conf: Path) -> None:
    users = "".join(f"{name}={password}\n" for name, password in PASSWORDS.items())
    (conf / "users.properties").write_text(users)


def _java(directory: Path, *command: str, **properties: object) -> StompServer:
    conf, (port, tls_port) = directory / "etc", free_ports(2)
    (conf / "log4j2.properties").write_text(LOG4J)
    process = ServerProcess(
        java(
            "-Xmx512m",
            *command,
            **properties,
            java_security_auth_login_config=conf / "login.config",
            log4j2_configurationFile=conf / "log4j2.properties",
            log4j2_disableJmx="true",
            sam_stomp_host=HOST,
            sam_stomp_port=tls_port,
            sam_local_port=port,
            sam_store="1 gb",
        ),
        log=directory / "log",
        ready=lambda: port_is_open(tls_port),
        cwd=directory,
    )
    return StompServer(port=port, tls_port=tls_port, directory=directory, process=process)
