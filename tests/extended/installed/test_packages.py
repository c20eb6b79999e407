"""What is in the packages, whether others accept them, and whether two builds agree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.extended.installed.installation import packages_or_missing
from tests.services import missing
from tests.services.packages import BUILD, NAMES, Packages
from tests.support.distribution import unpacked_archive

MAX_PUBLISHER_BYTES = 5_000_000
SMALL = NAMES[:2]
"""The reports have Spark: half a gigabyte, with which the same checks take minutes."""

LINT = BUILD.parent / "lint"


@pytest.fixture(scope="module")
def packages() -> Packages:
    return packages_or_missing()


def field(package: Path, name: str) -> str:
    return output("dpkg-deb", "--field", package, name).strip()


def output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd="/").stdout


def test_the_publisher_is_small_needs_only_python_and_is_configured_by_comments(
    packages: Packages, tmp_path: Path
) -> None:
    publisher = packages["sam-publish", "deb"]
    output("dpkg-deb", "--extract", publisher, tmp_path)
    needs = field(publisher, "Depends").split(", ")
    lines = (tmp_path / "etc/sam/sam.toml").read_text().splitlines()

    assert publisher.stat().st_size <= MAX_PUBLISHER_BYTES
    assert packages["sam-publish", "rpm"].stat().st_size <= MAX_PUBLISHER_BYTES
    assert field(publisher, "Architecture") == "all"
    assert packages["sam-publish", "rpm"].name.endswith(".noarch.rpm")
    assert "python3 (>= 3.9)" in needs
    assert not [need for need in needs if need.startswith("python3-")]
    members = ["debian-binary", "control.tar.xz", "data.tar.xz"]  # those of the oldest dpkg
    assert output("ar", "t", publisher).split() == members
    assert any("brokers" in line for line in lines)
    assert not [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("name", NAMES)
def test_everything_that_is_bundled_is_listed_with_its_licence(
    packages: Packages, name: str
) -> None:
    package = packages[name, "deb"]
    listed = output("dpkg-deb", "--contents", package)
    names = re.findall(r"/site-packages/([^/]+)\.dist-info/METADATA$", listed, re.MULTILINE)
    unpack = f"dpkg-deb --fsys-tarfile {package} | tar -xO ./usr/share/doc/{name}/copyright"
    bundled, text = set(map(normal, names)), output("sh", "-c", unpack)

    parts = re.split(r"^={80}\n", text, flags=re.MULTILINE)[1:]
    licences = {
        normal("-".join(part.split("\n")[0].split())): re.split(r"^-{40}\n", part, flags=re.M)[1:]
        for part in parts
    }
    ours = {each for each in bundled if each.startswith("sam-pipeline-")}
    assert bundled - ours <= licences.keys()
    assert [each for each in bundled - ours if len("".join(licences[each])) < 500] == []
    assert bool(bundled) == (name != "sam-publish")
    assert any(each.startswith("tomli-") for each in licences) == (name == "sam-publish")


def normal(name: str) -> str:
    """`Mako-1.4.3` and `python_dateutil-4.0.0`, as all tools of Python would write them."""
    return re.sub(r"[-_]+", "-", name).lower()


@pytest.mark.parametrize(
    ("suffix", "command"),
    [
        ("deb", ["lintian", "--allow-root", "--fail-on", "error"]),
        ("rpm", ["rpmlint", "--config", str(LINT / "rpmlint.toml")]),
    ],
)
def test_the_linter_of_the_format_finds_no_error(
    packages: Packages, suffix: str, command: list[str]
) -> None:
    if shutil.which(command[0]) is None:
        missing(command[0], "make needs")
    files = [str(packages[name, suffix]) for name in SMALL]

    done = subprocess.run([*command, *files], stdout=subprocess.PIPE, text=True)

    assert done.returncode == 0, done.stdout


def test_another_build_elsewhere_and_later_gives_the_same_bytes(
    packages: Packages, tmp_path: Path
) -> None:
    source, temporary, target = (tmp_path / name for name in ("source", "temporary", "target"))
    temporary.mkdir()
    unpacked_archive(source)
    epoch = output("rpm", "-qp", "--qf=%{BUILDTIME}", packages["sam-publish", "rpm"])
    command = [sys.executable, BUILD, *(f"--package={name}" for name in SMALL)]
    elsewhere = {"TMPDIR": str(temporary), "TZ": "Asia/Tokyo", "SOURCE_DATE_EPOCH": epoch}
    subprocess.run(
        [*command, f"--source={source}", target], env={**os.environ, **elsewhere}, check=True
    )

    built = sorted(target.iterdir())
    originals = {path.name: packages.directory / path.name for path in built}
    assert len(built) == 2 * len(SMALL)
    assert [p.name for p in built if p.read_bytes() != originals[p.name].read_bytes()] == []
