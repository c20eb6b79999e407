"""Writes a .deb with dpkg-deb."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from package import Package

SYSTEMCTL = "deb-systemd-invoke"
"""Asks the host's policy first."""

LINT = Path(__file__).with_name("lint")


def write(staged: Package, output: Path) -> Path:
    with TemporaryDirectory(prefix="deb-", dir=staged.root.parent) as name:
        root = Path(name) / staged.name
        shutil.copytree(staged.root, root, symlinks=True, copy_function=os.link)
        return write_copy(replace(staged, root=root), output)


def write_copy(package: Package, output: Path) -> Path:
    """Write what is in the tree, after adding what only a .deb has."""
    overrides = LINT / f"{package.name}.lintian-overrides"
    if overrides.exists():
        target = package.root / "usr/share/lintian/overrides" / package.name
        target.parent.mkdir(parents=True)
        shutil.copyfile(overrides, target)
    control = package.root / "DEBIAN"
    control.mkdir()
    files = [path for path in package.paths() if path.is_file() and not path.is_symlink()]
    facts = package.facts
    architecture = "all" if facts["architecture"] == "all" else of_this_machine()
    size_kb = sum(-(-path.stat().st_size // 1024) for path in files)
    fields = {
        "Package": package.name,
        "Version": package.version,
        "Architecture": architecture,
        "Maintainer": facts["maintainer"],
        "Installed-Size": str(size_kb),
        "Depends": facts["deb_depends"],
        "Section": "net",
        "Priority": "optional",
        "Homepage": facts["homepage"],
        "Description": facts["summary"] + "\n" + described(facts["description"]),
    }
    (control / "control").write_text("".join(f"{key}: {value}\n" for key, value in fields.items()))
    sums = [f"{md5(path)}  {path.relative_to(package.root)}\n" for path in files]
    (control / "md5sums").write_text("".join(sums))
    if configuration := package.configuration():
        (control / "conffiles").write_text("".join(f"{path}\n" for path in configuration))
    for name, script in scripts(package).items():
        (control / name).write_text(f"#!/bin/sh\nset -e\n{script}")
        (control / name).chmod(0o755)
    package.set_times_and_modes()

    target = output / f"{package.name}_{package.version}_{architecture}.deb"
    compression = [f"-Z{facts['deb_compression']}", f"-z{facts['compression_level']}"]
    command = ["dpkg-deb", "--root-owner-group", *compression, "--build"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(package.source.epoch)}
    subprocess.run(
        [*command, str(package.root), str(target)],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return target


def scripts(package: Package) -> dict[str, str]:
    script = {
        name: package.script(name, SYSTEMCTL)
        for name in ("set-up", "restart", "unpublished", "stop", "reload", "purge")
    }
    return {
        "postinst": script["set-up"] + script["restart"],
        "prerm": f'[ "$1" = remove ] || exit 0\n{script["stop"]}{script["unpublished"]}',
        "postrm": (
            f'{script["reload"]}[ "$1" = purge ] || exit 0\n'
            f"{script['unpublished']}{script['purge']}"
        ),
    }


def of_this_machine() -> str:
    command = ["dpkg", "--print-architecture"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def described(text: str) -> str:
    """The long description: each line is indented, an empty one is a dot."""
    return "\n".join(f" {line or '.'}" for line in text.strip().splitlines())


def md5(path: Path) -> str:
    return hashlib.file_digest(path.open("rb"), "md5").hexdigest()
