"""A private ActiveMQ Classic 6: KahaDB, a STOMP and an OpenWire port.

The logins are `sam`, `sam-other` and anonymous:

    with running_activemq() as broker:
        publish_to(broker.url)

With `ActiveMQRules` it has a small store that fills up soon, or restricts access to some topics.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from tests.services.broker import (
    AS_USUAL,
    CACHE,
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

VERSION = "6.3.1"
JARS = (
    *(f"org.apache.activemq:activemq-{name}:{VERSION}" for name in ("spring", "console", "jaas")),
    *(f"org.apache.activemq:activemq-{name}:{VERSION}" for name in ("kahadb-store", "stomp")),
    *("org.springframework:spring-context:7.0.8", "commons-logging:commons-logging:1.3.5"),
    "org.apache.logging.log4j:log4j-slf4j2-impl:2.25.2",
)
"""The Maven index has no tarball of version 6; these are enough for a broker with users."""
POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>sam.tests</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
JAR = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)

BROKER_XML = """\
<beans xmlns="http://www.springframework.org/schema/beans"
       xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="http://www.springframework.org/schema/beans
                           http://www.springframework.org/schema/beans/spring-beans.xsd
                           http://activemq.apache.org/schema/core
                           http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="{name}"
          dataDirectory="{directory}/data" useJmx="false" schedulerSupport="false"
          advisorySupport="false" start="true"
          populateJMSXUserID="true" useAuthenticatedPrincipalForJMSXUserID="true">
    <persistenceAdapter>
      <kahaDB directory="{directory}/kahadb" {journal}/>
    </persistenceAdapter>
{plugins}{ssl_context}    <systemUsage>
      <systemUsage sendFailIfNoSpace="{fails_when_full}">
        <memoryUsage><memoryUsage limit="128 mb"/></memoryUsage>
        <storeUsage><storeUsage limit="{store}"/></storeUsage>
        <tempUsage><tempUsage limit="256 mb"/></tempUsage>
      </systemUsage>
    </systemUsage>
    <transportConnectors>
      <transportConnector name="stomp" uri="stomp://{host}:{port}"/>
{connectors}    </transportConnectors>
  </broker>
{imports}</beans>
"""
PLAIN = {
    **dict.fromkeys(("journal", "plugins", "ssl_context", "connectors", "imports"), ""),
    "name": "sam",
    "host": HOST,
    "store": "4 gb",
    "fails_when_full": "false",
}
"""Without directory and port: a broker with nothing special."""

PLUGINS = """\
    <plugins>
      <simpleAuthenticationPlugin anonymousAccessAllowed="true">
        <users>
          <authenticationUser username="{user}" password="{password}" groups="users"/>
          <authenticationUser username="{other_user}" password="{password}" groups="users"/>
        </users>
      </simpleAuthenticationPlugin>
{authorization}    </plugins>
"""
OPENWIRE = '      <transportConnector name="openwire" uri="tcp://{host}:{port}"/>\n'
SSL_CONTEXT = """\
    <sslContext>
      <sslContext keyStore="file:{key_store}" trustStore="file:{trust_store}"
                  keyStorePassword="{store_password}" trustStorePassword="{store_password}"
                  keyStoreType="pkcs12" trustStoreType="pkcs12"/>
    </sslContext>
"""
TLS_CONNECTOR = """\
      <transportConnector name="stomp+ssl"
                          uri="stomp+ssl://{host}:{port}?transport.needClientAuth=true"/>
"""

# All entries that match a destination apply together, so there is no rule for "the others".
AUTHORIZATION = """\
      <authorizationPlugin><map><authorizationMap><authorizationEntries>
        <authorizationEntry queue=">" read="anonymous" write="anonymous" admin="anonymous"/>
        <authorizationEntry topic="silent.>" read="nobody" write="anonymous" admin="anonymous"/>
        <authorizationEntry topic="forbidden.>" read="anonymous" write="nobody" admin="anonymous"/>
        <authorizationEntry topic="grid.>" read="anonymous" write="anonymous" admin="anonymous"/>
      </authorizationEntries></authorizationMap></map></authorizationPlugin>
"""
SMALL_STORE = "8 mb"
# Small files, because the store frees space only in whole files.
SMALL_JOURNAL = 'journalMaxFileLength="1mb" cleanupInterval="500" checkpointInterval="500"'


@dataclass(frozen=True, kw_only=True)
class ActiveMQServer(StompServer):
    openwire_port: int
    """For clients in Java."""

    def stores(self, name: str) -> bool:
        """Whether the store has ever had a queue or durable subscription with this in its name."""
        journal = (self.directory / "kahadb").glob("db-*.log")
        return any(name.encode() in file.read_bytes() for file in journal)


@dataclass(frozen=True)
class ActiveMQRules(Rules):
    """The settings that only this broker has."""

    when_full: Literal["", "blocks", "fails"] = ""
    """With a store of SMALL_STORE: what happens to a SEND then."""
    authorization: bool = False
    """AUTHORIZATION: topics `silent.>` can't be read, `forbidden.>` can't be sent to."""


def running_activemq(rules: Rules = AS_USUAL) -> AbstractContextManager[ActiveMQServer]:
    return running("activemq", lambda directory: _server(directory, rules))


def fetch(name: str = "activemq", jars: Sequence[str] = JARS) -> Path:
    """The directory of the pinned jars, and of what they need."""
    pom = CACHE / f"{name}-pom.xml"
    CACHE.mkdir(exist_ok=True)
    pom.write_text(POM.format("".join(JAR.format(*jar.split(":")) for jar in jars)))
    return fetched(name, VERSION, "copy-dependencies", "-f", str(pom))


def _server(directory: Path, rules: Rules) -> ActiveMQServer:
    port, openwire_port, tls_port = free_ports(3)
    host, chosen = rules.certificate, rules if isinstance(rules, ActiveMQRules) else ActiveMQRules()
    broker_xml, log4j = directory / "broker.xml", directory / "log4j2.properties"
    settings = {**PLAIN, "directory": str(directory), "port": str(port)}
    settings["plugins"] = PLUGINS.format(
        user=USER,
        other_user=OTHER_USER,
        password=PASSWORD,
        authorization=AUTHORIZATION if chosen.authorization else "",
    )
    settings["connectors"] = OPENWIRE.format(host=HOST, port=openwire_port)
    if chosen.when_full:
        settings |= {"journal": SMALL_JOURNAL, "store": SMALL_STORE}
        settings["fails_when_full"] = str(chosen.when_full == "fails").lower()
    if host:
        settings["ssl_context"] = SSL_CONTEXT.format(**vars(host))
        settings["connectors"] += TLS_CONNECTOR.format(host=HOST, port=tls_port)
    broker_xml.write_text(BROKER_XML.format(**settings))
    log4j.write_text(LOG4J)
    command = java(
        *("-Xmx1g", "-cp", f"{fetch()}/*", "org.apache.activemq.console.Main"),
        *("start", f"xbean:file:{broker_xml}"),
        log4j2_configurationFile=log4j,
        activemq_home=directory,
        activemq_base=directory,
    )
    ready = partial(takes_logins, port, rules, tls_port)
    process = ServerProcess(command, directory / "log", ready, cwd=directory)
    return ActiveMQServer(
        port=port,
        openwire_port=openwire_port,
        tls_port=tls_port,
        directory=directory,
        process=process,
    )
