"""What is in the packages, whether others would accept them, and whether two builds agree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.services import ServiceMissing, missing
from tests.services.packages import BUILD, NAMES, ROOT, Packages, built_packages

MAX_PUBLISHER_BYTES = 5_000_000
SMALL = NAMES[:2]
"""The reports have Spark: half a gigabyte, with which the same checks take minutes."""

LINT = BUILD.parent / "lint"


@pytest.fixture(scope="module")
def packages() -> Packages:
    try:
        return built_packages()
    except ServiceMissing as reason:
        missing(reason.name, reason.how_to_get_it)


def field(package: Path, name: str) -> str:
    return output("dpkg-deb", "--field", package, name).strip()


def output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def test_the_publisher_is_small_and_for_every_architecture(packages: Packages) -> None:
    publisher = packages["sam-publish", "deb"]

    assert publisher.stat().st_size <= MAX_PUBLISHER_BYTES
    assert packages["sam-publish", "rpm"].stat().st_size <= MAX_PUBLISHER_BYTES
    assert field(publisher, "Architecture") == "all"
    assert packages["sam-publish", "rpm"].name.endswith(".noarch.rpm")


def test_the_publisher_needs_python_and_no_package_of_python(packages: Packages) -> None:
    needs = field(packages["sam-publish", "deb"], "Depends").split(", ")

    assert "python3 (>= 3.9)" in needs
    assert not [need for need in needs if need.startswith("python3-")]


def test_the_publisher_can_be_unpacked_by_the_oldest_dpkg(packages: Packages) -> None:
    members = output("ar", "t", packages["sam-publish", "deb"]).split()

    assert members == ["debian-binary", "control.tar.xz", "data.tar.xz"]


def test_the_configuration_of_the_publisher_is_commented(
    packages: Packages, tmp_path: Path
) -> None:
    output("dpkg-deb", "--extract", packages["sam-publish", "deb"], tmp_path)

    lines = (tmp_path / "etc/sam/sam.toml").read_text().splitlines()
    assert any("brokers" in line for line in lines)
    assert not [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("name", NAMES)
def test_everything_that_is_bundled_is_listed_with_its_licence(
    packages: Packages, name: str
) -> None:
    bundled, text = set[str](), ""
    for path, content in documents(packages[name, "deb"]):
        if path.endswith(f"/doc/{name}/copyright"):
            text = content
        if found := re.search(r"/site-packages/([^/]+)\.dist-info/METADATA$", path):
            bundled.add(normal(found[1]))

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


def documents(package: Path) -> list[tuple[str, str]]:
    """Paths and contents of what describes the package and the libraries in it."""
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as process,
        tarfile.open(fileobj=process.stdout, mode="r|") as archive,
    ):
        return [
            (entry.name, file.read().decode())
            for entry in archive
            if entry.name.endswith(("/copyright", ".dist-info/METADATA"))
            and (file := archive.extractfile(entry))
        ]


def normal(name: str) -> str:
    """`Mako-1.4.3` and `python_dateutil-4.0.0`, as all tools of Python would write them."""
    return re.sub(r"[-_]+", "-", name).lower()


def test_lintian_finds_no_error(packages: Packages) -> None:
    if shutil.which("lintian") is None:
        missing("lintian", "make test-services")
    files = [str(packages[name, "deb"]) for name in SMALL]
    command = ["lintian", "--allow-root", "--fail-on", "error", *files]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)

    assert done.returncode == 0, done.stdout


def test_rpmlint_finds_no_error(packages: Packages) -> None:
    if shutil.which("rpmlint") is None:
        missing("rpmlint", "make test-services")
    files = [str(packages[name, "rpm"]) for name in SMALL]
    command = ["rpmlint", "--config", str(LINT / "rpmlint.toml"), *files]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)

    assert done.returncode == 0, done.stdout
    assert " 0 errors, " in done.stdout


@pytest.mark.parametrize("path", sorted(LINT.glob("*-overrides")), ids=lambda path: path.name)
def test_each_override_has_a_reason(path: Path) -> None:
    blocks = re.findall(r"((?:^#.*\n)*)((?:^[^#\n].*\n)+)", path.read_text(), re.MULTILINE)

    assert blocks
    assert all(reason for reason, _ in blocks)


def test_another_build_elsewhere_and_later_gives_the_same_bytes(
    packages: Packages, tmp_path: Path
) -> None:
    source, temporary, target = (tmp_path / name for name in ("source", "temporary", "target"))
    copy = "git ls-files -z | xargs -0 cp --parents --no-dereference -t"
    source.mkdir()
    subprocess.run(["sh", "-c", f"{copy} {source}"], cwd=ROOT, check=True)
    temporary.mkdir()
    epoch = output("rpm", "-qp", "--qf=%{BUILDTIME}", packages["sam-publish", "rpm"])
    command = [sys.executable, BUILD, *(f"--package={name}" for name in SMALL)]
    elsewhere = {"TMPDIR": str(temporary), "TZ": "Asia/Tokyo", "SOURCE_DATE_EPOCH": epoch}
    subprocess.run(
        [*command, f"--source={source}", target], env={**os.environ, **elsewhere}, check=True
    )

    built = sorted(target.iterdir())
    assert len(built) == 2 * len(SMALL)
    differ = [path.name for path in built if path.read_bytes() != original(packages, path)]
    assert differ == []


def original(packages: Packages, path: Path) -> bytes:
    return (packages.directory / path.name).read_bytes()
