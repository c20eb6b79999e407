"""A private ActiveMQ Classic 6: KahaDB, a STOMP and an OpenWire port, logins `sam` and anonymous.

    with running_activemq() as broker:
        publish_to(broker.url)

With `ActiveMQRules` it has a small store that is soon full, or keeps clients from some topics.
`python -m tests.services.activemq` fetches its jars, which needs Maven and the network once.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.services import ServiceMissing
from tests.services.broker import AS_USUAL, PASSWORD, USER, Rules, StompServer
from tests.services.process import HOST, ServerProcess, free_ports, port_is_open, stomp_answers

HOW_TO_GET_IT = "apt-get install maven default-jre-headless"
VERSION = "6.3.1"
POM = Path(__file__).with_name("activemq-pom.xml")
JARS = Path(__file__).parents[2] / ".cache" / f"activemq-{VERSION}"

BROKER_XML = """\
<beans xmlns="http://www.springframework.org/schema/beans"
       xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="http://www.springframework.org/schema/beans
                           http://www.springframework.org/schema/beans/spring-beans.xsd
                           http://activemq.apache.org/schema/core
                           http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="sam"
          dataDirectory="{directory}/data" useJmx="false" schedulerSupport="false"
          advisorySupport="false" start="true">
    <persistenceAdapter>
      <kahaDB directory="{directory}/kahadb" {journal}/>
    </persistenceAdapter>
    <plugins>
      <simpleAuthenticationPlugin anonymousAccessAllowed="{anonymous}">
        <users><authenticationUser username="{user}" password="{password}" groups="users"/></users>
      </simpleAuthenticationPlugin>
{authorization}    </plugins>
{ssl_context}    <systemUsage>
      <systemUsage sendFailIfNoSpace="{fails_when_full}">
        <memoryUsage><memoryUsage limit="128 mb"/></memoryUsage>
        <storeUsage><storeUsage limit="{store}"/></storeUsage>
        <tempUsage><tempUsage limit="256 mb"/></tempUsage>
      </systemUsage>
    </systemUsage>
    <transportConnectors>
      <transportConnector name="stomp" uri="stomp://{host}:{port}"/>
      <transportConnector name="openwire" uri="tcp://{host}:{openwire_port}"/>
{tls_connector}    </transportConnectors>
  </broker>
</beans>
"""

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

# All entries that match a destination count together: there can't be a rule for the others.
AUTHORIZATION = """\
      <authorizationPlugin><map><authorizationMap><authorizationEntries>
        <authorizationEntry queue=">" read="anonymous" write="anonymous" admin="anonymous"/>
        <authorizationEntry topic="silent.>" read="nobody" write="anonymous" admin="anonymous"/>
        <authorizationEntry topic="forbidden.>" read="anonymous" write="nobody" admin="anonymous"/>
        <authorizationEntry topic="grid.>" read="anonymous" write="anonymous" admin="anonymous"/>
      </authorizationEntries></authorizationMap></map></authorizationPlugin>
"""
SMALL_STORE = "8 mb"
# Files that are given back soon: a store has room again when a whole file is of no use.
SMALL_JOURNAL = 'journalMaxFileLength="1mb" cleanupInterval="500" checkpointInterval="500"'

LOG4J = """\
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %-5p %c{1} %m%n
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
"""


@dataclass(frozen=True, kw_only=True)
class ActiveMQServer(StompServer):
    openwire_port: int
    """For clients in Java."""


@dataclass(frozen=True)
class ActiveMQRules(Rules):
    """What only this one can do otherwise."""

    when_full: Literal["", "blocks", "fails"] = ""
    """With a store of SMALL_STORE: what happens to a SEND then."""
    authorization: bool = False
    """AUTHORIZATION: topics `silent.>` can't be read, `forbidden.>` can't be sent to."""


@contextlib.contextmanager
def running_activemq(rules: Rules = AS_USUAL) -> Iterator[ActiveMQServer]:
    """A running broker; everything it wrote is gone on leaving the block."""
    java = shutil.which("java")
    if java is None:
        raise ServiceMissing("ActiveMQ", HOW_TO_GET_IT)
    jars = fetch_jars()
    with tempfile.TemporaryDirectory(prefix="sam-activemq-") as name:
        broker = _server(java, jars, Path(name), rules)
        try:
            broker.process.start()
            yield broker
        finally:
            broker.process.kill()


def fetch_jars() -> Path:
    """The directory of the pinned jars, filled by Maven the first time."""
    if not JARS.is_dir():
        _fetch(JARS)
    return JARS


def _fetch(target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ServiceMissing("ActiveMQ", HOW_TO_GET_IT)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="activemq-", dir=target.parent) as name:
        # Under its own name only when whole, so that an interrupted fetch is fetched again.
        part = Path(name) / "jars"
        subprocess.run(_copy_dependencies(maven, part), check=True)
        with contextlib.suppress(OSError):  # another process was first
            part.rename(target)


def _copy_dependencies(maven: str, target: Path) -> list[str]:
    plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
    return [
        maven,
        "-q",
        "-B",
        "-Dstyle.color=never",
        "-f",
        str(POM),
        plugin,
        f"-DoutputDirectory={target}",
    ]


def _server(java: str, jars: Path, directory: Path, rules: Rules) -> ActiveMQServer:
    port, openwire_port, tls_port = free_ports(3)
    broker_xml = directory / "broker.xml"
    broker_xml.write_text(_broker_xml(directory, port, openwire_port, tls_port, rules))
    log4j = directory / "log4j2.properties"
    log4j.write_text(LOG4J)
    process = ServerProcess(
        command=[
            java,
            "-Xmx512m",
            f"-Dlog4j2.configurationFile={log4j}",
            f"-Dactivemq.home={directory}",
            f"-Dactivemq.base={directory}",
            "-cp",
            f"{jars}/*",
            "org.apache.activemq.console.Main",
            "start",
            f"xbean:file:{broker_xml}",
        ],
        log=directory / "log",
        ready=lambda: (
            stomp_answers(port, USER, PASSWORD)
            and (rules.certificate is None or port_is_open(tls_port))
        ),
        cwd=directory,
    )
    return ActiveMQServer(
        port=port,
        openwire_port=openwire_port,
        tls_port=tls_port,
        directory=directory,
        process=process,
    )


def _broker_xml(directory: Path, port: int, openwire_port: int, tls_port: int, rules: Rules) -> str:
    host, chosen = rules.certificate, rules if isinstance(rules, ActiveMQRules) else ActiveMQRules()
    return BROKER_XML.format(
        user=USER,
        password=PASSWORD,
        directory=directory,
        host=HOST,
        port=port,
        ssl_context=SSL_CONTEXT.format(**vars(host)) if host else "",
        journal=SMALL_JOURNAL if chosen.when_full else "",
        store=SMALL_STORE if chosen.when_full else "4 gb",
        fails_when_full=str(chosen.when_full == "fails").lower(),
        anonymous=str(not rules.needs_login).lower(),
        authorization=AUTHORIZATION if chosen.authorization else "",
        tls_connector=TLS_CONNECTOR.format(host=HOST, port=tls_port) if host else "",
        openwire_port=openwire_port,
    )


if __name__ == "__main__":
    try:
        print(fetch_jars())
    except ServiceMissing as reason:
        raise SystemExit(str(reason)) from None
