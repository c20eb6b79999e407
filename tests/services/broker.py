"""The common part of the private brokers: a STOMP port, a login, a process to kill.

Maven fetches the brokers in Java, which needs the network once: `python -m tests.services`.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.services import ServiceMissing
from tests.services.process import HOST, Server, port_is_open, stomp_answers

USER, OTHER_USER = "sam", "sam-other"
PASSWORD = "sam-secret"
"""Of both users."""
CACHE = Path(__file__).parents[2] / ".cache"
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options that halve the processor time of a start; a broker that lives for long gets slower."""
java_options: list[str] = []
"""Of the brokers in Java; tests add QUICK_START, benchmarks do not."""
MAVEN_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
LOG4J = """\
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %-5p %c{1} %m%n
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
"""


@dataclass(frozen=True)
class HostCertificate:
    """The certificate of a broker and its authority, as files and as stores for Java."""

    ca_file: Path
    certificate_file: Path
    key_file: Path
    key_store: Path
    trust_store: Path
    store_password: str


@dataclass(frozen=True)
class Rules:
    """How a broker differs from the default one."""

    certificate: HostCertificate | None = None
    """It has a second STOMP port, over TLS, for clients with a certificate."""


AS_USUAL = Rules()


@dataclass(frozen=True, kw_only=True)
class StompServer(Server):
    port: int
    tls_port: int
    """For clients with a certificate; closed unless the broker has a certificate, too."""
    host: str = HOST
    user: str = USER
    other_user: str = OTHER_USER
    password: str = PASSWORD

    @property
    def url(self) -> str:
        """STOMP without a login; anonymous clients may do everything."""
        return f"stomp://{self.host}:{self.port}"

    @property
    def url_with_user(self) -> str:
        return f"stomp://{self.user}@{self.host}:{self.port}"

    @property
    def tls_url(self) -> str:
        return f"stomp+ssl://{self.host}:{self.tls_port}"

    def kill(self) -> None:
        """Send SIGKILL; stored messages survive."""
        self.process.kill()

    def restart(self) -> None:
        """Kill it, if it runs, and start it again on the same data and ports."""
        self.process.kill()
        self.process.start()

    def frozen(self) -> AbstractContextManager[None]:
        """Freeze the broker with SIGSTOP, its ports open, until the end of the block."""
        return self.process.frozen()


def takes_logins(port: int, rules: Rules, tls_port: int) -> bool:
    """True when a client may connect to each of the broker's STOMP ports."""
    return stomp_answers(port, USER, PASSWORD) and (
        rules.certificate is None or port_is_open(tls_port)
    )


def java(*command: str, **properties: object) -> list[str]:
    """A command of `java` with our options; a property's `_` stands for `.`."""
    settings = [f"-D{name.replace('_', '.')}={value}" for name, value in properties.items()]
    return [_program("java"), *java_options, *settings, *command]


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """A directory that is made when it is first needed."""
    target = CACHE / name
    if not target.is_dir():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=CACHE) as directory:
            # Renamed only when complete, so that an interrupted attempt is repeated.
            output = Path(directory) / "output"
            make(output)
            with suppress(OSError):  # another process was faster
                output.resolve().rename(target)
    return target


def fetched(broker: str, version: str, goal: str, *options: str, unpacked: str = ".") -> Path:
    """A directory that a goal of Maven's dependency plugin fills.

    Args:
        unpacked: the part of the goal's output to keep.
    """

    def fetch(output: Path) -> None:
        whole = output.with_name("whole")
        maven = [_program("mvn"), "-q", "-B", "-Dstyle.color=never", f"{MAVEN_PLUGIN}:{goal}"]
        command = [*maven, f"-DoutputDirectory={whole}", *options]
        subprocess.run(command, check=True, cwd=whole.parent)  # Maven leaves a marker file in cwd
        output.symlink_to(whole / unpacked)

    return cached(f"{broker}-{version}", fetch)


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise ServiceMissing(name, "apt-get install maven default-jre-headless")
    return path
