"""A private ActiveMQ Artemis: journal on disk, one port for STOMP and clients in Java, logins `sam`
and anonymous.

    with running_artemis() as broker:
        publish_to(broker.url)

`python -m tests.services.artemis` fetches it, which needs Maven and the network once.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.services import ServiceMissing
from tests.services.broker import AS_USUAL, PASSWORD, USER, HostCertificate, Rules, StompServer
from tests.services.process import HOST, ServerProcess, free_ports, port_is_open, stomp_answers

HOW_TO_GET_IT = "apt-get install maven default-jre-headless"
VERSION = "2.56.0"
ARTIFACT = f"org.apache.artemis:apache-artemis:{VERSION}:tar.gz:bin"
HOME = Path(__file__).parents[2] / ".cache" / f"artemis-{VERSION}"
FORBIDDEN = "forbidden."
"""Destinations that begin so can't be sent to."""
SILENT = "silent."
"""Destinations that begin so can't be subscribed to."""

SMALL = "small."
"""Destinations that begin so hold 4 MB; then a SEND gets an ERROR.

There is none where it waits: over STOMP the policy BLOCK lets everything in, up to the whole heap.
"""

TLS_ACCEPTOR = """\
      <acceptor name="stomp+ssl">tcp://{host}:{tls_port}?protocols=STOMP;anycastPrefix=/queue/;multicastPrefix=/topic/;sslEnabled=true;needClientAuth=true;keyStoreType=PKCS12;keyStorePath={key_store};keyStorePassword={store_password};trustStoreType=PKCS12;trustStorePath={trust_store};trustStorePassword={store_password}</acceptor>
"""
ANYBODY = """\
  org.apache.activemq.artemis.spi.core.security.jaas.GuestLoginModule sufficient
    credentialsInvalidate=true
    org.apache.activemq.jaas.guest.user="guest"
    org.apache.activemq.jaas.guest.role="users";
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
{anybody}}};
""",
    "users.properties": "{user} = {password}\n",
    "roles.properties": "users = {user}\n",
    "log4j2.properties": """\
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %-5p %c{{1}} %m%n
rootLogger.level = INFO
logger.audit.name = org.apache.activemq.audit
logger.audit.level = OFF
rootLogger.appenderRef.out.ref = out
""",
}


@dataclass(frozen=True, kw_only=True)
class ArtemisServer(StompServer):
    """Nothing of its own."""


@contextlib.contextmanager
def running_artemis(rules: Rules = AS_USUAL) -> Iterator[ArtemisServer]:
    """A running broker; everything it wrote is gone on leaving the block."""
    java = shutil.which("java")
    if java is None:
        raise ServiceMissing("Artemis", HOW_TO_GET_IT)
    home = fetch_artemis()
    with tempfile.TemporaryDirectory(prefix="sam-artemis-") as name:
        broker = _server(java, home, Path(name), rules)
        try:
            broker.process.start()
            yield broker
        finally:
            broker.process.kill()


def fetch_artemis() -> Path:
    """The directory of the pinned distribution, filled by Maven the first time."""
    if not HOME.is_dir():
        _fetch(HOME)
    return HOME


def _fetch(target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ServiceMissing("Artemis", HOW_TO_GET_IT)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="artemis-", dir=target.parent) as name:
        # Under its own name only when whole, so that an interrupted fetch is fetched again.
        subprocess.run(_unpack(maven, Path(name)), check=True, cwd=name)  # it leaves a marker
        with contextlib.suppress(OSError):  # another process was first
            (Path(name) / f"apache-artemis-{VERSION}").rename(target)


def _unpack(maven: str, target: Path) -> list[str]:
    plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack"
    options = [f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={target}"]
    return [maven, "-q", "-B", "-Dstyle.color=never", plugin, *options]


def _server(java: str, home: Path, directory: Path, rules: Rules) -> ArtemisServer:
    port, tls_port = free_ports(2)
    etc = directory / "etc"
    etc.mkdir()
    names = {"directory": directory, "host": HOST, "port": port, "user": USER, "password": PASSWORD}
    names |= {"forbidden": FORBIDDEN, "silent": SILENT, "small": SMALL}
    names |= {"anybody": "" if rules.needs_login else ANYBODY}
    names |= {"tls_acceptor": _tls_acceptor(rules.certificate, tls_port)}
    for name, text in FILES.items():
        (etc / name).write_text(text.format(**names))
    process = ServerProcess(
        command=[
            java,
            "-Xmx512m",
            f"-Djava.security.auth.login.config={etc}/login.config",
            f"-Dlog4j2.configurationFile={etc}/log4j2.properties",
            "-Dlog4j2.disableJmx=true",
            f"-Dartemis.home={home}",
            f"-Dartemis.instance={directory}",
            f"-Dartemis.instance.etc={etc}",
            f"-Ddata.dir={directory}/data",
            "-cp",
            f"{home}/lib/artemis-boot.jar",
            "org.apache.activemq.artemis.boot.Artemis",
            "run",
        ],
        log=directory / "log",
        ready=lambda: (
            stomp_answers(port, USER, PASSWORD)
            and (rules.certificate is None or port_is_open(tls_port))
        ),
        cwd=directory,
    )
    return ArtemisServer(port=port, tls_port=tls_port, directory=directory, process=process)


def _tls_acceptor(certificate: HostCertificate | None, port: int) -> str:
    if certificate is None:
        return ""
    return TLS_ACCEPTOR.format(host=HOST, tls_port=port, **vars(certificate))


if __name__ == "__main__":
    try:
        print(fetch_artemis())
    except ServiceMissing as reason:
        raise SystemExit(str(reason)) from None
