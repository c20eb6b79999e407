"""A private ActiveMQ Classic 5.18: KahaDB, the message servlet (REST) and a STOMP port.

    with running_activemq5() as broker:
        publish_to(broker.rest_url, broker.user, broker.password)

It is the last line whose servlet is on by default; `tests.services.activemq` has the newest broker.
`python -m tests.services.activemq5` fetches the distribution: Maven and the network, once.
"""

from __future__ import annotations

import base64
import contextlib
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.services import ServiceMissing
from tests.services.broker import PASSWORD, USER, StompServer
from tests.services.process import HOST, ServerProcess, free_ports, stomp_answers

HOW_TO_GET_IT = "apt-get install maven default-jre-headless"
VERSION = "5.18.3"
ARTIFACT = f"org.apache.activemq:apache-activemq:{VERSION}:tar.gz:bin"
HOME = Path(__file__).parents[2] / ".cache" / f"activemq-{VERSION}"

BROKER_XML = """\
<beans xmlns="http://www.springframework.org/schema/beans"
       xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="http://www.springframework.org/schema/beans
                           http://www.springframework.org/schema/beans/spring-beans.xsd
                           http://activemq.apache.org/schema/core
                           http://activemq.apache.org/schema/core/activemq-core.xsd">
  <!-- The servlet finds the broker by this name, and logs in to it as nobody. -->
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="localhost"
          dataDirectory="{directory}/data" useJmx="false" schedulerSupport="false"
          advisorySupport="false">
    <persistenceAdapter><kahaDB directory="{directory}/kahadb"/></persistenceAdapter>
    <systemUsage>
      <systemUsage>
        <memoryUsage><memoryUsage limit="128 mb"/></memoryUsage>
        <storeUsage><storeUsage limit="1 gb"/></storeUsage>
        <tempUsage><tempUsage limit="256 mb"/></tempUsage>
      </systemUsage>
    </systemUsage>
    <transportConnectors>
      <transportConnector name="stomp" uri="stomp://{host}:{port}"/>
    </transportConnectors>
  </broker>
  <import resource="jetty.xml"/>
</beans>
"""

LOG4J = """\
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %-5p %c{1} %m%n
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
"""


@dataclass(frozen=True, kw_only=True)
class ActiveMQ5Server(StompServer):
    rest_port: int

    @property
    def rest_url(self) -> str:
        """The message servlet, which wants the login."""
        return f"activemq-rest+http://{self.user}@{self.host}:{self.rest_port}/api/message"


@contextlib.contextmanager
def running_activemq5() -> Iterator[ActiveMQ5Server]:
    """A running broker; everything it wrote is gone on leaving the block."""
    java = shutil.which("java")
    if java is None:
        raise ServiceMissing("ActiveMQ 5", HOW_TO_GET_IT)
    home = fetch_distribution()
    with tempfile.TemporaryDirectory(prefix="sam-activemq5-") as name:
        broker = _server(java, home, Path(name))
        try:
            broker.process.start()
            yield broker
        finally:
            broker.process.kill()


def fetch_distribution() -> Path:
    """The directory of the pinned distribution, filled by Maven the first time."""
    if not HOME.is_dir():
        _fetch(HOME)
    return HOME


def _fetch(target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ServiceMissing("ActiveMQ 5", HOW_TO_GET_IT)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="activemq5-", dir=target.parent) as name:
        subprocess.run(_copy_artifact(maven, name), check=True)
        (archive,) = Path(name).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(name, filter="data")
        with contextlib.suppress(OSError):  # another process was first
            (Path(name) / f"apache-activemq-{VERSION}").rename(target)


def _copy_artifact(maven: str, target: str) -> list[str]:
    plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
    options = [f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={target}"]
    return [maven, "-q", "-B", "-Dstyle.color=never", plugin, *options]


def _server(java: str, home: Path, directory: Path) -> ActiveMQ5Server:
    port, tls_port, rest_port = free_ports(3)
    conf = directory / "conf"
    conf.mkdir()
    settings = {"directory": directory, "host": HOST, "port": port}
    (conf / "activemq.xml").write_text(BROKER_XML.format(**settings))
    (conf / "jetty.xml").write_text(_jetty_xml(home, conf, rest_port))
    (conf / "jetty-realm.properties").write_text(f"{USER}: {PASSWORD}, user\n")
    (conf / "credentials.properties").touch()  # jetty wants one
    (conf / "log4j2.properties").write_text(LOG4J)
    shutil.copy(home / "conf" / "jolokia-access.xml", conf)
    process = ServerProcess(
        command=[
            java,
            "-Xmx512m",
            f"-Dlog4j2.configurationFile={conf / 'log4j2.properties'}",
            f"-Djolokia.conf=file:{conf / 'jolokia-access.xml'}",
            f"-Djava.io.tmpdir={directory}",
            f"-Dactivemq.home={home}",
            f"-Dactivemq.base={directory}",
            f"-Dactivemq.conf={conf}",
            f"-Dactivemq.data={directory / 'data'}",
            "-jar",
            str(home / "bin" / "activemq.jar"),
            "start",
        ],
        log=directory / "log",
        ready=lambda: stomp_answers(port) and _servlet_answers(rest_port),
        cwd=directory,
    )
    return ActiveMQ5Server(
        port=port, tls_port=tls_port, rest_port=rest_port, directory=directory, process=process
    )


def _jetty_xml(home: Path, conf: Path, rest_port: int) -> str:
    """The distribution's own, which needs a login, on our port."""
    text = (home / "conf" / "jetty.xml").read_text()
    text = text.replace('value="8161"', f'value="{rest_port}"')
    return text.replace("${activemq.conf}", str(conf)).replace("${activemq.home}", str(home))


def _servlet_answers(rest_port: int) -> bool:
    """True when the servlet could say that a queue is empty."""
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    url = f"http://{HOST}:{rest_port}/api/message/ready?type=queue&readTimeout=1&oneShot=true"
    request = urllib.request.Request(url, headers={"Authorization": f"Basic {login}"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status in (200, 204)
    except OSError:
        return False


if __name__ == "__main__":
    try:
        print(fetch_distribution())
    except ServiceMissing as reason:
        raise SystemExit(str(reason)) from None
