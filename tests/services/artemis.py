"""A private ActiveMQ Artemis: journal on disk, one port for STOMP and clients in Java.

The logins are `sam`, `sam-other` and anonymous:

    with running_artemis() as broker:
        publish_to(broker.url)
"""

from __future__ import annotations

import subprocess
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.services.broker import (
    AS_USUAL,
    LOG4J,
    OTHER_USER,
    PASSWORD,
    USER,
    Rules,
    StompServer,
    fetched,
    java,
    takes_logins,
)
from tests.services.process import HOST, ServerProcess, free_ports, running

VERSION = "2.56.0"
ARTIFACT = f"org.apache.artemis:apache-artemis:{VERSION}:tar.gz:bin"
BOOT = "org.apache.activemq.artemis.boot.Artemis"
FORBIDDEN = "forbidden."
"""Destinations that begin so can't be sent to."""
SILENT = "silent."
"""Destinations that begin so can't be subscribed to."""

SMALL = "small."
"""Destinations that begin so hold 4 MB; then a SEND gets an ERROR.

There is none where it waits: over STOMP the policy BLOCK lets everything in, up to the whole heap.
"""

SHARED = "VirtualTopic."
"""Of topics that begin so, shared subscriptions stay while nobody reads them: by default the broker
removes one that is empty, within 30 s, and then keeps no messages for it."""

TLS_ACCEPTOR = """\
      <acceptor name="stomp+ssl">tcp://{host}:{tls_port}?protocols=STOMP;anycastPrefix=/queue/;multicastPrefix=/topic/;sslEnabled=true;needClientAuth=true;keyStoreType=PKCS12;keyStorePath={key_store};keyStorePassword={store_password};trustStoreType=PKCS12;trustStorePath={trust_store};trustStorePassword={store_password}</acceptor>
"""
FILES = {
    "broker.xml": """\
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>sam</name>
    <journal-type>NIO</journal-type>
    <paging-directory>{directory}/data/paging</paging-directory>
    <bindings-directory>{directory}/data/bindings</bindings-directory>
    <journal-directory>{directory}/data/journal</journal-directory>
    <large-messages-directory>{directory}/data/large-messages</large-messages-directory>
    <populate-validated-user>true</populate-validated-user>
    <max-disk-usage>99</max-disk-usage>
    <global-max-size>96Mb</global-max-size>
    <acceptors>
      <acceptor name="stomp">tcp://{host}:{port}?protocols=STOMP,CORE;anycastPrefix=/queue/;multicastPrefix=/topic/</acceptor>
{tls_acceptor}    </acceptors>
    <address-settings>
      <address-setting match="{small}#">
        <max-size-bytes>4Mb</max-size-bytes>
        <address-full-policy>FAIL</address-full-policy>
      </address-setting>
      <address-setting match="{shared}#">
        <auto-delete-queues>false</auto-delete-queues>
        <auto-delete-addresses>false</auto-delete-addresses>
      </address-setting>
    </address-settings>
    <security-settings>
      <security-setting match="{forbidden}#">
        <permission type="consume" roles="users"/>
        <permission type="send" roles="nobody"/>
      </security-setting>
      <security-setting match="{silent}#">
        <permission type="createNonDurableQueue" roles="users"/>
        <permission type="createAddress" roles="users"/>
        <permission type="consume" roles="nobody"/>
        <permission type="send" roles="users"/>
      </security-setting>
      <security-setting match="#">
        <permission type="createNonDurableQueue" roles="users"/>
        <permission type="deleteNonDurableQueue" roles="users"/>
        <permission type="createDurableQueue" roles="users"/>
        <permission type="deleteDurableQueue" roles="users"/>
        <permission type="createAddress" roles="users"/>
        <permission type="deleteAddress" roles="users"/>
        <permission type="consume" roles="users"/>
        <permission type="send" roles="users"/>
        <permission type="manage" roles="users"/>
      </security-setting>
    </security-settings>
  </core>
</configuration>
""",
    "bootstrap.xml": """\
<broker xmlns="http://activemq.apache.org/schema">
  <jaas-security domain="activemq"/>
  <server configuration="file:{directory}/etc/broker.xml"/>
</broker>
""",
    "management.xml": '<management-context xmlns="http://activemq.apache.org/schema"/>\n',
    "login.config": """\
activemq {{
  org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule sufficient
    org.apache.activemq.jaas.properties.user="users.properties"
    org.apache.activemq.jaas.properties.role="roles.properties";
  org.apache.activemq.artemis.spi.core.security.jaas.GuestLoginModule sufficient
    credentialsInvalidate=true
    org.apache.activemq.jaas.guest.user="guest"
    org.apache.activemq.jaas.guest.role="users";
}};
""",
    "users.properties": "{user} = {password}\n{other_user} = {password}\n",
    "roles.properties": "users = {user},{other_user}\n",
}
NO_AUDIT = """\
logger.audit.name = org.apache.activemq.audit
logger.audit.level = OFF
"""


@dataclass(frozen=True, kw_only=True)
class ArtemisServer(StompServer):
    """An Artemis broker."""

    def queues(self) -> set[str]:
        """The names of all queues, those of subscriptions among them."""
        home, url = fetch(), f"tcp://{self.host}:{self.port}"
        command = java(
            *("-cp", f"{home}/lib/artemis-boot.jar", BOOT, "queue", "stat", "--silent"),
            *("--url", url, "--user", self.user, "--password", self.password),
            *("--maxRows", "10000", "--maxColumnSize", "-1"),
            artemis_home=home,
        )
        listed = subprocess.run(command, capture_output=True, text=True, check=True)
        rows = [line.split("|") for line in listed.stdout.splitlines() if line.startswith("|")]
        return {row[1].strip() for row in rows[2:]}


def running_artemis(rules: Rules = AS_USUAL) -> AbstractContextManager[ArtemisServer]:
    return running("artemis", lambda directory: _server(directory, rules))


def fetch() -> Path:
    """The directory of the pinned distribution."""
    unpacked = f"apache-artemis-{VERSION}"
    return fetched("artemis", VERSION, "unpack", f"-Dartifact={ARTIFACT}", unpacked=unpacked)


def _server(directory: Path, rules: Rules) -> ArtemisServer:
    home = fetch()
    port, tls_port = free_ports(2)
    etc = directory / "etc"
    etc.mkdir()
    names = {"directory": directory, "host": HOST, "port": port, "user": USER, "password": PASSWORD}
    names |= {"other_user": OTHER_USER}
    names |= {"forbidden": FORBIDDEN, "silent": SILENT, "small": SMALL, "shared": SHARED}
    names |= {"tls_acceptor": ""}
    if rules.certificate:
        tls = TLS_ACCEPTOR.format(host=HOST, tls_port=tls_port, **vars(rules.certificate))
        names["tls_acceptor"] = tls
    for name, text in FILES.items():
        (etc / name).write_text(text.format(**names))
    (etc / "log4j2.properties").write_text(LOG4J + NO_AUDIT)
    command = java(
        *("-Xmx512m", "-cp", f"{home}/lib/artemis-boot.jar", BOOT, "run"),
        java_security_auth_login_config=etc / "login.config",
        log4j2_configurationFile=etc / "log4j2.properties",
        log4j2_disableJmx="true",
        artemis_home=home,
        artemis_instance=directory,
        artemis_instance_etc=etc,
        data_dir=directory / "data",
    )
    ready = partial(takes_logins, port, rules, tls_port)
    process = ServerProcess(command, directory / "log", ready, cwd=directory)
    return ArtemisServer(port=port, tls_port=tls_port, directory=directory, process=process)
