"""What is in the .deb files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.services import ServiceMissing, missing
from tests.services.packages import built_packages

MAX_PUBLISHER_BYTES = 5_000_000


@pytest.fixture(scope="module")
def publisher() -> Path:
    try:
        return built_packages("sam-publish")["sam-publish", "deb"]
    except ServiceMissing as reason:
        missing(reason.name, reason.how_to_get_it)


def field(package: Path, name: str) -> str:
    command = ["dpkg-deb", "--field", str(package), name]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def test_the_publisher_is_small_and_for_every_architecture(publisher: Path) -> None:
    assert publisher.stat().st_size <= MAX_PUBLISHER_BYTES
    assert field(publisher, "Architecture") == "all"


def test_the_publisher_needs_python_and_no_package_of_python(publisher: Path) -> None:
    needs = field(publisher, "Depends").split(", ")

    assert "python3 (>= 3.9)" in needs
    assert not [need for need in needs if need.startswith("python3-")]


def test_the_configuration_of_the_publisher_is_commented(publisher: Path, tmp_path: Path) -> None:
    subprocess.run(["dpkg-deb", "--extract", str(publisher), str(tmp_path)], check=True)

    lines = (tmp_path / "etc/sam/sam.toml").read_text().splitlines()
    assert any("brokers" in line for line in lines)
    assert not [line for line in lines if line and not line.startswith("#")]
