"""The files of each package, as they will be installed."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from environment import install_commands, install_wheels
from licences import copyright_of
from package import Package
from source import Source

COMPLETIONS = {
    "bash": "bash-completion/completions",
    "zsh": "zsh/vendor-completions",  # of Debian; site-functions is that of the others
    "fish": "fish/vendor_completions.d",
}
INTERPRETER = "/usr/bin/python3"
FOLDERS = {
    "sam-publish": ("worker",),
    "sam-pipeline": ("consumer", "database"),
    "sam-pipeline-reports": ("reports",),
}
"""The folders of deploy/systemd/. What all units share belongs to sam-publish."""

EXAMPLES = (
    *("sam.toml", "critical.toml", "publishers.toml", "stomp_loader.py"),
    *("ansible", "brokers", "grafana", "prometheus"),
)
"""The files and folders of deploy/ that the pages of docs/ name; sam-pipeline has them."""


def stage(name: str, source: Source, root: Path) -> Package:
    root.mkdir()
    package = Package(name, source, root)
    if name == "sam-publish":
        stage_publisher(package)
    else:
        install_wheels(package)
        install_commands(package)
    stage_units(package)
    stage_manual(package)
    stage_documents(package)
    package.set_times_and_modes()
    return package


def stage_publisher(package: Package) -> None:
    """The one-file publisher, its plugin, which is a link to it, and its configuration."""
    source, root = package.source.root, package.root
    program = root / "usr/bin/sam-publish"
    build = [sys.executable, str(source / "deploy/pyz/build.py"), str(program), INTERPRETER]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    link(root / "usr/bin/check_sam_publisher", "sam-publish")
    link(root / "usr/lib/nagios/plugins/check_sam_publisher", "../../../bin/sam-publish")

    (root / "etc/sam/conf.d").mkdir(parents=True)
    example = (source / "deploy/sam.toml").read_text().splitlines()
    commented = [line if line.startswith("#") or not line else f"# {line}" for line in example]
    (root / "etc/sam/sam.toml").write_text("\n".join(commented) + "\n")


def stage_units(package: Package) -> None:
    """Units, accounts and directories; drop-ins keep their folder."""
    ours = {folder for folders in FOLDERS.values() for folder in folders}
    units = package.source.root / "deploy/systemd"
    folders = [units / folder for folder in FOLDERS[package.name]]
    if package.name == "sam-publish":
        folders += [path for path in units.iterdir() if path.is_dir() and path.name not in ours]
    for folder in folders:
        shutil.copytree(folder, package.root / "usr/lib/systemd/system", dirs_exist_ok=True)
    for kind in ("sysusers", "tmpfiles"):
        given = Path(__file__).with_name(package.name) / f"{kind}.conf"
        if given.exists():
            target = package.root / f"usr/lib/{kind}.d/{package.name}.conf"
            target.parent.mkdir(parents=True)
            shutil.copyfile(given, target)


def stage_manual(package: Package) -> None:
    """Manual pages, compressed, and completion, where each shell of either format looks for it."""
    source, share = package.source, package.root / "usr/share"
    pages = [*package.programs, *(["sam.toml"] if package.name == "sam-publish" else [])]
    environment = {
        **os.environ,
        "PYTHONPATH": str(source.root.parent),
        "SOURCE_DATE_EPOCH": str(source.epoch),
    }
    with TemporaryDirectory() as name:
        command = [sys.executable, "-m", "deploy.manual", name, *pages]
        subprocess.run(command, cwd=source.root, env=environment, check=True)
        for page in Path(name, "man").iterdir():
            path = share / f"man/man{page.suffix[1:]}" / f"{page.name}.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(page.read_bytes(), 9, mtime=0))
        for shell, directory in COMPLETIONS.items():
            shutil.copytree(Path(name, shell), share / directory)
    for script in (share / COMPLETIONS["zsh"]).iterdir():
        link(share / "zsh/site-functions" / script.name, f"../vendor-completions/{script.name}")


def stage_documents(package: Package) -> None:
    documents = package.root / "usr/share/doc" / package.name
    documents.mkdir(parents=True)
    (documents / "copyright").write_text(copyright_of(package))
    changelog = (package.source.root / "CHANGELOG.md").read_bytes()
    (documents / "changelog.gz").write_bytes(gzip.compress(changelog, 9, mtime=0))
    if package.name == "sam-pipeline":
        for name in EXAMPLES:
            copy(package.source.root / "deploy" / name, documents / "examples" / name)


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, target) if source.is_dir() else shutil.copyfile(source, target)


def link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
