"""The consumer that a Java engineer would write, as a process: see java/JmsToSql.java.

The process runs for all turns, so that Java's compiler has seen the messages of a whole turn before
the first turn that counts.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import make_url

from tests.benchmarks.consume_road import TOPIC
from tests.benchmarks.load import PLAIN

SOURCE = Path(__file__).with_name("java") / "JmsToSql.java"
POM = SOURCE.with_name("pom.xml")
JARS = Path(__file__).parents[2] / ".cache" / "java-consumer"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


class Drained(NamedTuple):
    """The number of messages, and the times of the begin and the end (s since 1970)."""

    messages: int
    began: float
    ended: float


class JavaConsumer:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def drain(self) -> Drained:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        messages, began, ended = map(int, self._process.stdout.readline().split())
        return Drained(messages, began / 1000, ended / 1000)


@contextmanager
def java_consumer(kind: str, broker: Any, database: str) -> Iterator[JavaConsumer]:
    """A process that loads the messages of its own subscription into the table `plain`."""
    jars = fetch_jars()
    classes = jars / "classes"
    subprocess.run(["javac", "-cp", f"{jars}/*", "-d", str(classes), str(SOURCE)], check=True)
    java = ["java", "-Xmx512m", "-cp", f"{jars}/*:{classes}", "JmsToSql", kind]
    arguments = [_broker_url(kind, broker), TOPIC, _jdbc_url(database), ",".join(PLAIN.all_columns)]
    process = subprocess.Popen(
        [*java, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield JavaConsumer(process)
    finally:
        process.kill()
        process.communicate()


def fetch_jars(pom: Path = POM, into: Path = JARS) -> Path:
    """The directory of the jars that the POM names, downloaded by Maven the first time."""
    complete = into / "pom.xml"
    if not complete.exists() or complete.read_text() != pom.read_text():
        shutil.rmtree(into, ignore_errors=True)  # of other versions
        command = ["mvn", "-q", "-B", "-Dstyle.color=never", "-f", str(pom), PLUGIN]
        subprocess.run([*command, f"-DoutputDirectory={into}"], check=True)
        shutil.copy(pom, complete)  # last: it marks a complete download
    return into


def _broker_url(kind: str, broker: Any) -> str:
    port = broker.openwire_port if kind == "activemq" else broker.port
    return f"tcp://{broker.host}:{port}"


def _jdbc_url(database: str) -> str:
    url = make_url(database)
    login = f"user={url.username}&password={url.password}"
    return (
        f"jdbc:postgresql://{url.host}:{url.port}/{url.database}?{login}&reWriteBatchedInserts=true"
    )
