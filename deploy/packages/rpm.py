"""Writes a .rpm with rpmbuild."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory

from package import Package

TEMPLATE = Path(__file__).with_name("template.spec")


def write(package: Package, output: Path) -> Path:
    facts = package.facts
    fields = [f"Requires: {need}" for need in facts["rpm_requires"].split(", ")]
    if facts["architecture"] == "all":
        fields.append("BuildArch: noarch")
    scripts = {
        name: package.script(name, "systemctl").replace("%", "%%").strip()
        for name in ("set-up", "restart", "stop", "reload")
    }
    spec = Template(TEMPLATE.read_text()).substitute(
        name=package.name,
        version=package.version,
        summary=facts["summary"],
        licences=facts["licences"],
        homepage=facts["homepage"],
        maintainer=facts["maintainer"],
        description=facts["description"].strip(),
        compression=f"w{facts['compression_level']}.zstdio",
        fields="\n".join(fields),
        root=package.root,
        set_up=scripts["set-up"],
        restart=scripts["restart"],
        stop=scripts["stop"],
        reload=scripts["reload"],
        files="\n".join(listed(package)),
    )
    with TemporaryDirectory() as name:
        (Path(name) / "package.spec").write_text(spec)
        command = ["rpmbuild", "-bb", "--quiet", f"--define=_topdir {name}"]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(package.source.epoch)}
        subprocess.run([*command, f"{name}/package.spec"], env=environment, check=True)
        [built] = Path(name, "RPMS").rglob("*.rpm")
        return built.rename(output / built.name)


def listed(package: Package) -> list[str]:
    """The lines of %files: our files, and no directory that other packages also use."""
    configuration = package.configuration()
    lines = ["%defattr(-, root, root)"]
    for path in package.paths():
        installed = path.relative_to(package.root)
        is_directory = path.is_dir() and not path.is_symlink()
        if is_directory and any(part.startswith("sam") for part in installed.parts):
            lines.append(f'%dir "/{installed}"')
        elif not is_directory:
            kind = "%config(noreplace) " if f"/{installed}" in configuration else ""
            lines.append(f'{kind}"/{installed}"')
    return lines
