"""Builds sam-publish.pyz: the publisher and its dependencies in one file, for Python 3.9 and newer.

    python deploy/pyz/build.py build/sam-publish.pyz [INTERPRETER]

    __main__.py, sam_pipeline/, tomli/   the sources, for any version of Python
    cpython-39/, cpython-311/, …         their bytecode, for each Python on this machine, because
                                         none can write its bytecode into the file itself; none
                                         of the load test, which is large and rarely used

The same sources and interpreters give the same bytes: entries are sorted and have fixed times and
modes, which rules out zipapp. Bytecode is not compressed: decompressing it at each start takes
longer than reading. Only a Python without bytecode reads the sources.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
INTERPRETER = "/usr/bin/env python3"
"""What its first line names, unless a second argument does."""

PACKAGE = "sam_pipeline"
OLDEST, NEWEST = 9, 20
"""Minor versions of Python 3: the first one supported, and one that does not exist yet."""

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a ZIP file can store."""

# Each Python runs this with the directories of the sources and of the bytecode.
COMPILE = """
import pathlib, py_compile, sys
root, target = map(pathlib.Path, sys.argv[1:])
for source in sorted(root.rglob("*.py")):
    name = source.relative_to(root)
    if name.parts[0] == "tomli" and sys.version_info >= (3, 11):  # they have tomllib
        continue
    to = target / sys.implementation.cache_tag / name.with_suffix(".pyc")
    how = py_compile.PycInvalidationMode.UNCHECKED_HASH
    shown = "sam-publish.pyz/" + str(name)
    py_compile.compile(str(source), str(to), shown, True, 2, how)  # no docstrings
"""

WITHOUT_BYTECODE = ("publisher/load_test/", "publisher/commands/load_test.py")

Files = dict[str, bytes]
"""Content by path in the archive."""


def main() -> None:
    target, interpreter = Path(sys.argv[1]), "".join(sys.argv[2:]) or INTERPRETER
    target.parent.mkdir(parents=True, exist_ok=True)
    build(target, interpreter)
    print(f"{target}: {target.stat().st_size} bytes")


def build(target: Path, interpreter: str = INTERPRETER) -> None:
    sources = {**own_sources(), **dependencies()}
    files = {**sources, **bytecode(sources), "__main__.py": (HERE / "__main__.py").read_bytes()}
    with open(target, "wb") as file:
        file.write(f"#!{interpreter}\n".encode())
        with ZipFile(file, "w", compresslevel=9) as archive:
            for name, content in sorted(files.items()):
                entry = ZipInfo(name, EPOCH)
                entry.create_system = 3  # Unix
                entry.external_attr = 0o100644 << 16
                is_source = name.endswith(".py") and "/" in name
                archive.writestr(entry, content, ZIP_DEFLATED if is_source else ZIP_STORED)
    target.chmod(0o755)


def own_sources() -> Files:
    """The publisher and what it imports, the licence, and metadata with the version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    sources = {
        f"{PACKAGE}/{path.relative_to(ROOT)}": path.read_bytes() for path in sorted(modules())
    }
    return {
        **sources,
        # Before 3.13 Python finds no namespace package in an archive.
        f"{PACKAGE}/__init__.py": b"",
        f"{name.replace('-', '_')}-{version}.dist-info/METADATA": metadata.encode(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
    }


def modules() -> set[Path]:
    """The modules of the publisher, and those they import from other rooms, also in functions."""
    found = set[Path]()
    to_read = [*(ROOT / "publisher").rglob("*.py")]
    while to_read:
        path = to_read.pop()
        if path in found:
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}."):
                module = ROOT.joinpath(*str(node.module).split(".")[1:])
                names = [module / name.name for name in node.names]
                files = [name.with_suffix(".py") for name in (module, *names)]
                packages = [folder / "__init__.py" for folder in (module, *module.parents)]
                to_read += filter(Path.is_file, files)
                to_read += (file for file in packages if ROOT in file.parents and file.is_file())
    return {path for path in found if path.parent != ROOT}


def dependencies() -> Files:
    """The content of the wheels that requirements.txt pins by hash."""
    files: Files = {}
    with TemporaryDirectory() as directory:
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet"),
                *("--disable-pip-version-check", "--require-hashes", "--dest", directory),
                *("--requirement", str(HERE / "requirements.txt"), "--no-deps"),
                *("--only-binary=:all:", "--platform", "any", "--python-version", "3.9"),
                *("--implementation", "py", "--abi", "none"),
            ],
            check=True,
        )
        for wheel in Path(directory).glob("*.whl"):
            with ZipFile(wheel) as archive:
                for name in archive.namelist():
                    if name.endswith(".py") or "/licenses/" in name:
                        files[name] = archive.read(name)
    return files


def bytecode(sources: Files) -> Files:
    """The bytecode of the sources; paths begin with the cache tag of a Python: `cpython-311/`."""
    with TemporaryDirectory() as directory:
        root, target = Path(directory, "sources"), Path(directory, "compiled")
        for name, content in sources.items():
            is_rare = name.startswith(tuple(f"{PACKAGE}/{part}" for part in WITHOUT_BYTECODE))
            if name.endswith(".py") and not is_rare:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_bytes(content)
        environment = {**os.environ, "PYTHONHASHSEED": "0"}  # sets keep their order in bytecode
        for python in pythons().values():
            # Relative, because pathlib interns the parts of paths, and bytecode stores strings
            # that are interned elsewhere in another way.
            command = [python, "-S", "-c", COMPILE, root.name, target.name]
            subprocess.run(command, cwd=directory, check=True, env=environment)
        files = sorted(target.rglob("*.pyc"))
        return {str(path.relative_to(target)): path.read_bytes() for path in files}


@cache
def pythons() -> dict[str, str]:
    """The supported interpreters on this machine, one for each version, such as 3.9."""
    names = [f"python3.{minor}" for minor in range(OLDEST, NEWEST)]
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [sys.executable, *filter(None, map(shutil.which, names))]
    candidates += map(str, sorted(root.glob("versions/*/bin/python")))
    script = "import sys; sys.version_info >= (3, %d) and print('%%d.%%d' %% sys.version_info[:2])"
    by_version: dict[str, str] = {}
    for python in candidates:
        command = [python, "-S", "-c", script % OLDEST]
        done = subprocess.run(command, capture_output=True, text=True)
        version = done.stdout.strip()
        if done.returncode == 0 and version:
            by_version.setdefault(version, python)
    return by_version


if __name__ == "__main__":
    main()
