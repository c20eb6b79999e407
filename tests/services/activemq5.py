"""A private ActiveMQ Classic 5.18: KahaDB, the message servlet (REST) and a STOMP port.

    with running_activemq5() as broker:
        publish_to(broker.rest_url, broker.user, broker.password)

The last version whose servlet is on by default; `tests.services.activemq` has the newest broker.
"""

from __future__ import annotations

import base64
import shutil
import urllib.request
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tests.services.activemq import BROKER_XML, PLAIN
from tests.services.broker import LOG4J, PASSWORD, USER, StompServer, fetched, java
from tests.services.process import HOST, ServerProcess, free_ports, running, stomp_answers

VERSION = "5.18.3"
ARTIFACT = f"org.apache.activemq:apache-activemq:{VERSION}:tar.gz:bin"


@dataclass(frozen=True, kw_only=True)
class ActiveMQ5Server(StompServer):
    rest_port: int

    @property
    def rest_url(self) -> str:
        """The message servlet, which requires the login."""
        return f"activemq-rest+http://{self.user}@{self.host}:{self.rest_port}/api/message"


def running_activemq5() -> AbstractContextManager[ActiveMQ5Server]:
    return running("activemq5", _server)


def fetch() -> Path:
    """The directory of the pinned distribution."""
    unpacked = f"apache-activemq-{VERSION}"
    return fetched("activemq", VERSION, "unpack", f"-Dartifact={ARTIFACT}", unpacked=unpacked)


def _server(directory: Path) -> ActiveMQ5Server:
    home = fetch()
    port, tls_port, rest_port = free_ports(3)
    conf = directory / "conf"
    conf.mkdir()
    # The servlet finds the broker by this name, and logs in to it as nobody.
    settings = {**PLAIN, "name": "localhost", "directory": str(directory), "port": str(port)}
    settings["imports"] = '  <import resource="jetty.xml"/>\n'
    (conf / "activemq.xml").write_text(BROKER_XML.format(**settings))
    jetty = (home / "conf" / "jetty.xml").read_text()  # it requires a login
    jetty = jetty.replace('value="8161"', f'value="{rest_port}"')
    jetty = jetty.replace("${activemq.conf}", str(conf)).replace("${activemq.home}", str(home))
    (conf / "jetty.xml").write_text(jetty)
    (conf / "jetty-realm.properties").write_text(f"{USER}: {PASSWORD}, user\n")
    (conf / "credentials.properties").touch()  # Jetty needs one
    (conf / "log4j2.properties").write_text(LOG4J)
    shutil.copy(home / "conf" / "jolokia-access.xml", conf)
    command = java(
        *("-Xmx512m", "-jar", str(home / "bin" / "activemq.jar"), "start"),
        log4j2_configurationFile=conf / "log4j2.properties",
        jolokia_conf=f"file:{conf / 'jolokia-access.xml'}",
        java_io_tmpdir=directory,
        activemq_home=home,
        activemq_base=directory,
        activemq_conf=conf,
        activemq_data=directory / "data",
    )
    process = ServerProcess(
        command,
        directory / "log",
        ready=lambda: stomp_answers(port) and _servlet_answers(rest_port),
        cwd=directory,
    )
    return ActiveMQ5Server(
        port=port, tls_port=tls_port, rest_port=rest_port, directory=directory, process=process
    )


def _servlet_answers(rest_port: int) -> bool:
    """True when the servlet reports that a queue is empty."""
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    url = f"http://{HOST}:{rest_port}/api/message/ready?type=queue&readTimeout=1&oneShot=true"
    request = urllib.request.Request(url, headers={"Authorization": f"Basic {login}"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status in (200, 204)
    except OSError:
        return False
