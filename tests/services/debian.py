"""A bare Debian, made from the packages that apt installs here, and a repository for it.

    with own_network(), booted_debian() as machine:
        machine.succeed("apt-get install -y postgresql")

Nothing of this machine is in it: no Python, no PostgreSQL, no account but the system's. Without a
network it installs from its only repository, a directory of packages that it can read at /mnt.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tests.services import PRIVILEGED, ServiceMissing
from tests.services.broker import cached
from tests.services.machine import Machine, booted_machine

# In addition to the essential packages and apt.
BARE = ("init", "dbus")
# What our packages require, what the pages of docs/ install, and what their tests type.
INSTALLABLE = ("postgresql", "default-jre-headless", "python3-venv", "curl", "openssl")
REPOSITORY = "debian"
FINISH = Path(__file__).with_name("debian.sh")


@dataclass(frozen=True)
class BareDebian:
    """`root` has the files of a host, `repository` the packages that it can install."""

    root: Path
    repository: Path


@contextlib.contextmanager
def booted_debian(shared: Mapping[str, Path] = MappingProxyType({})) -> Iterator[Machine]:
    """A booted bare Debian whose apt knows its repository; `shared` is below its /mnt, too."""
    bare = bare_debian()
    with booted_machine(bare.root, {REPOSITORY: bare.repository, **shared}) as machine:
        machine.succeed("apt-get update -qq")
        yield machine


def bare_debian() -> BareDebian:
    """The root and its repository, built when first needed."""
    if os.geteuid() != 0:
        raise ServiceMissing("the privilege to install a Debian", PRIVILEGED)
    if not shutil.which("mmdebstrap") or not shutil.which("dpkg-scanpackages"):
        raise ServiceMissing("mmdebstrap", "apt-get install mmdebstrap dpkg-dev")
    sources, options = _sources(), _options()
    ingredients = (sources, options, BARE, INSTALLABLE, FINISH.read_text())
    key = hashlib.sha256(repr(ingredients).encode()).hexdigest()[:12]

    def build(output: Path) -> None:
        output.mkdir()
        settings = output.with_name("apt.conf")
        settings.write_text(options)
        command = ["unshare", "--mount", "mmdebstrap", "--quiet", "--mode=root"]
        command += ["--variant=minbase", f"--include={','.join(BARE)}", f"--aptopt={settings}"]
        command += ["--dpkgopt=force-unsafe-io"]  # the machines are in memory
        command += [f"--customize-hook={FINISH}", "", str(output / "root"), "-"]
        names = {"REPOSITORY": str(output / REPOSITORY), "PACKAGES": " ".join(INSTALLABLE)}
        try:
            subprocess.run(command, input=sources, text=True, check=True, env=os.environ | names)
        except subprocess.CalledProcessError as error:
            raise ServiceMissing("a bare Debian", "make needs") from error

    target = cached(f"debian-{key}", build)
    return BareDebian(target / "root", target / REPOSITORY)


def _sources() -> str:
    """Where this machine gets Debian's packages from, a line for each component."""
    form = "deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    command = ["apt-get", "indextargets", "--format", form, "Created-By: Packages"]
    done = subprocess.run(
        [*command, "Origin: Debian"], stdout=subprocess.PIPE, text=True, check=True
    )
    if not done.stdout:
        raise ServiceMissing("a list of Debian's packages", "apt-get update, on a Debian")
    return done.stdout


def _options() -> str:
    """How apt reaches them from here: proxies, and checks that a mirror would fail."""
    done = subprocess.run(["apt-config", "dump"], stdout=subprocess.PIPE, text=True, check=True)
    ways = ("Acquire::http", "Acquire::Check-")
    return "".join(line for line in done.stdout.splitlines(True) if line.startswith(ways))
