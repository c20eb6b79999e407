"""A machine of the test's own: files that are copied on write, and a systemd with a journal.

    with own_network(), booted_copy() as machine:
        machine.shell("systemctl start postgresql")

It shares the network of the thread that boots it, and ends with its owner.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.services import PRIVILEGED, ServiceMissing
from tests.services.broker import cached
from tests.services.process import ServerProcess, descendants

ROOT = Path(__file__).parents[2]
BOOT = Path(__file__).with_name("boot.sh")
CHECKOUT = "/usr/local/src/sam-pipeline"
NAMESPACES = ("--mount", "--pid", "--uts", "--ipc")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Root's shell with nobody at it, and pip's packages without the network.
ENVIRONMENT = {
    "PATH": PATH,
    "HOME": "/root",
    "USER": "root",
    "LANG": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": "/mnt/wheels",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}


@dataclass(frozen=True)
class Machine:
    process: ServerProcess
    directory: str = "/root"
    """Where its shell is."""

    @property
    def files(self) -> Path:
        """Its root directory, as this process can open it."""
        return Path(f"/proc/{descendants(self.process.pid)[0]}/root")

    def shell(self, script: str, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
        """Run a script as root in its directory; stderr is part of its output."""
        return subprocess.run(
            [*self.enter(), "bash", "-euo", "pipefail", "-c", f"cd {self.directory}\n{script}"],
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )

    def succeed(self, script: str) -> str:
        """The output of a script that must not fail."""
        done = self.shell(script)
        assert done.returncode == 0, f"{script}\n-> {done.returncode}\n{done.stdout}"
        return done.stdout

    def take_checkout(self) -> None:
        """Copy the files under version control, as they are now, to CHECKOUT."""
        pack = ["bash", "-c", "set -o pipefail; git ls-files -z | tar -c --null --files-from=-"]
        archive = subprocess.run(pack, cwd=ROOT, capture_output=True, check=True)
        unpack = ["sh", "-c", f"mkdir -p {CHECKOUT} && tar -x -C {CHECKOUT}"]
        entered = [*self.enter(), *unpack]
        subprocess.run(entered, input=archive.stdout, env=ENVIRONMENT, check=True)

    def booted(self) -> bool:
        with contextlib.suppress(IndexError):  # its first process is not there yet
            command = [*self.enter(), "systemctl", "is-active", "basic.target"]
            done = subprocess.run(command, capture_output=True, env=ENVIRONMENT)
            return done.returncode == 0
        return False

    def enter(self) -> list[str]:
        """What runs a command in the machine, as root, when put before it."""
        first = descendants(self.process.pid)[0]
        return ["nsenter", f"--target={first}", *NAMESPACES, "--cgroup", "--root", "--wd", "--"]


@contextlib.contextmanager
def booted_copy() -> Iterator[Machine]:
    """A copy of this machine, its shell in our checkout, with the wheels for it."""
    with booted_machine(Path("/"), {"wheels": wheels()}) as machine:
        machine.take_checkout()
        yield replace(machine, directory=CHECKOUT)


@contextlib.contextmanager
def booted_machine(root: Path, shared: Mapping[str, Path]) -> Iterator[Machine]:
    """A machine with the files below `root`, until the end of the block.

    It can read the directories `shared` at /mnt/NAME.
    """
    if os.geteuid() != 0:
        raise ServiceMissing("the privilege to boot a systemd", PRIVILEGED)
    if not (root / "lib/systemd/systemd").exists():
        raise ServiceMissing("systemd", "apt-get install systemd")
    with tempfile.TemporaryDirectory(prefix="sam-machine-") as name:
        directory = Path(name) / "files"
        directory.mkdir()
        group = Path(name).name
        process = ServerProcess(
            [
                *("unshare", *NAMESPACES, "--fork", "--kill-child"),
                *(str(BOOT), str(directory), group, str(root)),
                *(f"{name}={path}" for name, path in shared.items()),
            ],
            log=Path(name) / "log",
            ready=lambda: machine.booted(),
        )
        machine = Machine(process)
        try:
            process.start()
            yield machine
        finally:
            process.kill()
            _remove_group(directory, group)


def wheels() -> Path:
    """A directory with all packages that pip installs with ours, filled when first needed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    wanted = [*project["build-system"]["requires"]]
    for extra in ("consumer", "archive", "door", "reports", "sign"):
        wanted += extras[extra]
    requirements = [name for name in wanted if not name.startswith("sam-pipeline")]

    def fill(output: Path) -> None:
        python = str(shutil.which("python3", path=PATH))
        pip = [sys.executable, "-m", "pip", "--python", python, "wheel", "--quiet"]
        subprocess.run([*pip, f"--wheel-dir={output}", *requirements], check=True)

    return cached(f"wheels-{hashlib.sha256(repr(requirements).encode()).hexdigest()[:12]}", fill)


def _remove_group(directory: Path, group: str) -> None:
    """Its processes are gone, and so is every mount of theirs; the group has to be removed."""
    script = 'mount -t cgroup2 cgroup2 "$1" && find "$1/$2" -depth -type d -delete'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", str(directory), group]
    subprocess.run(command, check=False, capture_output=True)
