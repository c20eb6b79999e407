"""A server process that cannot outlive the process that started it."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tests.support.waiting import eventually

HOST = "127.0.0.1"
# Below the kernel's ephemeral range, from which an outgoing connection could take the port of a
# server that is being restarted.
PORTS = range(20_000, 30_000)
# Reads until the owner of its standard input ends, even by SIGKILL.
GUARD = 'cat >/dev/null; kill -s KILL -- "-$1"'
GUARD_OF_ITS_GROUP = "cat >/dev/null; kill -s KILL 0"


class ServerDied(Exception):
    """A server did not start; the message ends with the last lines of its log."""


@dataclass
class ServerProcess:
    """One command that can be restarted on the same data and port.

    It leads its own process group; a guard kills that group when this process ends in any way,
    including SIGKILL.
    """

    command: Sequence[str]
    log: Path
    ready: Callable[[], bool]
    env: Mapping[str, str] | None = None
    cwd: Path | None = None
    account: str | None = None
    start_timeout_s: float = 60
    lent_pid: int | None = None
    """That of a server which belongs to another process."""
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _guard: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which can see the pid and the log, but not control the server."""
        return {"command": self.command, "log": self.log, "env": self.env, "lent_pid": self.pid}

    @property
    def pid(self) -> int:
        pid = self._process.pid if self._process else self.lent_pid
        if pid is None:
            raise ServerDied(f"{self.command[0]} is not running")
        return pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        self._require_ours()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                cwd=self.cwd,
                start_new_session=True,
                **as_account(self.account),
            )
        self._guard = subprocess.Popen(
            ["sh", "-c", GUARD, "guard", str(self._process.pid)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with contextlib.suppress(TimeoutError):
            eventually(lambda: not self.running or self.ready(), self.start_timeout_s)
            if self.running:
                return
        self.kill()
        raise ServerDied(f"{self.command[0]} did not start:\n{last_lines(self.log)}")

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = 30) -> None:
        """Ask the server to end, and kill it if it does not."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL to the server and its descendants and wait until they are gone."""
        self._require_ours()
        if self._process is None or self._guard is None:
            return
        # A stopped server starts no more processes, which would survive it.
        _send([self._process.pid], signal.SIGSTOP)
        family = [self._process.pid, *descendants(self._process.pid)]
        _send(family, signal.SIGKILL)
        self._process.wait()
        self._guard.communicate()  # at the end of input it kills the rest of the group
        self._guard = None
        eventually(lambda: not any(alive(pid) for pid in family))
        self._process = None

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """SIGSTOP for the server and its descendants until the end of the block.

        They may be killed meanwhile.
        """
        self._require_ours()
        family = [self.pid, *descendants(self.pid)]
        _send(family, signal.SIGSTOP)
        try:
            yield
        finally:
            _send(family, signal.SIGCONT)

    def _require_ours(self) -> None:
        if self.lent_pid is not None:
            raise AssertionError("other tests use this server, too: start one of your own")


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running service, with all its files in a directory."""

    directory: Path
    process: ServerProcess

    @property
    def processes(self) -> Sequence[ServerProcess]:
        """All processes, in the order in which they are started."""
        return (self.process,)


AnyServer = TypeVar("AnyServer", bound=Server)


@contextlib.contextmanager
def running(name: str, set_up: Callable[[Path], AnyServer]) -> Iterator[AnyServer]:
    """A service in a new directory, which is removed on leaving the block."""
    with (
        # Not pytest's directory, which the account of PostgreSQL cannot enter.
        tempfile.TemporaryDirectory(prefix=f"sam-{name}-") as directory,
        contextlib.ExitStack() as stack,
    ):
        server = set_up(Path(directory))
        for process in server.processes:
            stack.callback(process.kill)
            process.start()
        yield server


@contextlib.contextmanager
def guarded_group() -> Iterator[int]:
    """A process group, for `Popen`, that is killed when the block or this process ends."""
    guard = subprocess.Popen(
        ["sh", "-c", GUARD_OF_ITS_GROUP], stdin=subprocess.PIPE, process_group=0
    )
    try:
        yield guard.pid
    finally:
        guard.communicate()


def as_account(account: str | None) -> dict[str, Any]:
    """The subprocess arguments that run a command as another account (as root only)."""
    if account is None or os.geteuid() != 0:
        return {}
    return {"user": account, "group": pwd.getpwnam(account).pw_gid, "extra_groups": []}


def _send(family: Sequence[int], number: signal.Signals) -> None:
    for pid in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def free_ports(count: int) -> list[int]:
    """Different ports on which nothing listens."""
    ports: list[int] = []
    for port in random.sample(PORTS, 200):
        with contextlib.suppress(OSError), socket.socket() as candidate:
            candidate.bind((HOST, port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError(f"no free port in {PORTS}")


def stomp_answers(port: int, user: str = "", password: str = "") -> bool:
    """True when a broker answers CONNECT; with the port open it may still refuse logins."""
    login = f"login:{user}\npasscode:{password}\n" if user else ""
    try:
        with socket.create_connection((HOST, port), timeout=2) as connection:
            connection.sendall(f"CONNECT\naccept-version:1.2\nhost:/\n{login}\n\0".encode())
            return connection.recv(9) == b"CONNECTED"
    except OSError:
        return False


def port_is_open(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=2):
            return True
    except OSError:
        return False


def alive(pid: int) -> bool:
    """True while the process runs; a zombie does not run."""
    return _status_field(pid, 0) not in ("", "Z", "X")


def descendants(pid: int) -> list[int]:
    """All descendants, from /proc, because PostgreSQL's children leave the process group."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _status_field(int(entry.name), 1)):
            children.setdefault(int(parent), []).append(int(entry.name))

    def walk(parent: int) -> Iterator[int]:
        for child in children.get(parent, ()):
            yield child
            yield from walk(child)

    return list(walk(pid))


def _status_field(pid: int, position: int) -> str:
    """A field of /proc/PID/stat after the command name; '' when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[position]


def last_lines(log: Path, count: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
