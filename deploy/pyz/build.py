"""Makes sam-publish.pyz: the publisher and all it needs in one file, for Python 3.9 and newer.

    python deploy/pyz/build.py build/sam-publish.pyz

    __main__.py, sam_pipeline/, tomli/   the sources, for any Python
    cpython-39/, cpython-311/, …         the same compiled, for each Python on this machine:
                                         none can write its bytecode into the file itself

The same sources and Pythons give the same bytes: files are sorted, their times and modes fixed.
(That is why this does not call zipapp, which writes the time of each file.) Nothing is deflated:
to inflate it at each start takes longer than to read it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_STORED, ZipFile, ZipInfo

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SHEBANG = b"#!/usr/bin/env python3\n"
PACKAGE = "sam_pipeline"
ROOMS = ("publisher", "schema")
OLDEST, NEWEST = 9, 20
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The first moment that a ZIP file can name."""

# Run by each Python with the directory of the sources and that of the results.
COMPILE = """
import pathlib, py_compile, sys
root, target = map(pathlib.Path, sys.argv[1:])
for source in sorted(root.rglob("*.py")):
    name = source.relative_to(root)
    to = target / sys.implementation.cache_tag / name.with_suffix(".pyc")
    how = py_compile.PycInvalidationMode.UNCHECKED_HASH
    shown = "sam-publish.pyz/" + str(name)
    py_compile.compile(str(source), str(to), shown, True, invalidation_mode=how)
"""

Files = dict[str, bytes]


def main() -> None:
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    build(target)
    print(f"{target}: {target.stat().st_size} bytes")


def build(target: Path) -> None:
    sources = {**_own(), **_dependencies()}
    files = {**sources, **_compiled(sources), "__main__.py": (HERE / "__main__.py").read_bytes()}
    with open(target, "wb") as file:
        file.write(SHEBANG)
        with ZipFile(file, "w", ZIP_STORED) as archive:
            for name, content in sorted(files.items()):
                archive.writestr(_entry(name), content)
    target.chmod(0o755)


def pythons() -> dict[str, str]:
    """The interpreters of this machine that are new enough, one of each version, by version."""
    names = [f"python3.{minor}" for minor in range(OLDEST, NEWEST)]
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [sys.executable, *filter(None, map(shutil.which, names))]
    found += map(str, sorted(root.glob("versions/*/bin/python")))
    versions = ((_version(python), python) for python in found)
    by_version: dict[str, str] = {}
    for version, python in versions:
        if version:
            by_version.setdefault(version, python)
    return by_version


def _version(python: str) -> str:
    """Such as 3.9; nothing for one that is too old, or does not start."""
    ask = f"import sys; sys.version_info >= (3, {OLDEST}) and print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-S", "-c", ask], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def _own() -> Files:
    """The rooms, the licence, and as much of a distribution as tells the version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    sources = {
        f"{PACKAGE}/{path.relative_to(ROOT)}": path.read_bytes()
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
    }
    return {
        **sources,
        f"{PACKAGE}/__init__.py": b"",  # before 3.13, no namespace package is found in an archive
        f"{name.replace('-', '_')}-{version}.dist-info/METADATA": metadata.encode(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
    }


def _dependencies() -> Files:
    """What the wheels hold, the very ones that requirements.txt names by their hash."""
    wanted = "--no-deps --only-binary=:all: --python-version 3.9 --implementation py --abi none"
    with TemporaryDirectory() as directory:
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet"),
                *("--disable-pip-version-check", "--require-hashes", "--dest", directory),
                *("--requirement", str(HERE / "requirements.txt"), "--platform", "any"),
                *wanted.split(),
            ],
            check=True,
        )
        return dict(item for wheel in Path(directory).glob("*.whl") for item in _content(wheel))


def _content(wheel: Path) -> Iterator[tuple[str, bytes]]:
    with ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".py") or "/licenses/" in name:
                yield name, archive.read(name)


def _compiled(sources: Files) -> Files:
    """The sources by each Python; its name for itself is the first part of the path."""
    with TemporaryDirectory() as directory:
        root, target = Path(directory, "sources"), Path(directory, "compiled")
        for name, content in sources.items():
            if name.endswith(".py"):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_bytes(content)
        settled = {**os.environ, "PYTHONHASHSEED": "0"}  # the order of sets is in the bytecode
        for python in pythons().values():
            command = [python, "-S", "-c", COMPILE, str(root), str(target)]
            subprocess.run(command, check=True, env=settled)
        files = sorted(target.rglob("*.pyc"))
        return {str(path.relative_to(target)): path.read_bytes() for path in files}


def _entry(name: str) -> ZipInfo:
    entry = ZipInfo(name, EPOCH)
    entry.create_system = 3  # Unix
    entry.external_attr = 0o100644 << 16
    return entry


if __name__ == "__main__":
    main()
