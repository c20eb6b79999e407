"""/opt/sam, a virtual environment that was never anywhere else: wheels, commands and bytecode.

It belongs to two packages: sam-pipeline has what runs without Spark, sam-pipeline-reports the rest.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from package import Package
from source import CACHE, Source

HOME = "opt/sam"
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
REPORTS = "sam-pipeline-reports"
COMMANDS = {
    "sam-pipeline": ("sam-consume", "sam-db", "check_sam_consumer"),
    REPORTS: ("sam-report",),
}
COMMAND = """\
#!/{home}/bin/python3
import sys

from {module} import {function}

sys.exit({function}())
"""
UNUSED = (
    *("bin", "share", "*/tests", "*/*/tests", "*/*/*/tests", "pyspark/examples", "pyarrow/include"),
    "botocore/data/[!s]*/",  # services of Amazon other than S3 and those that give keys for it
    *(f"*.dist-info/{name}" for name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")),
)
"""Commands, tests and headers of others; what pip needs to remove what it installed."""


def install_wheels(package: Package) -> None:
    """Our code and what it needs, in the directory where the environment's Python looks for it."""
    source, is_reports = package.source, package.name == REPORTS
    packages = (
        package.root / HOME / "lib" / "python{}.{}".format(*source.python_version) / "site-packages"
    )
    with TemporaryDirectory() as name:
        ours = our_wheel(source, Path(name))
        pip_install(source, packages, [*sorted(wheels(source, package.name).glob("*.whl")), ours])
    for room in (packages / "sam_pipeline").iterdir():
        if (room.name == "spark_jobs") != is_reports:
            shutil.rmtree(room)
    if is_reports:
        [metadata] = packages.glob("sam_pipeline-*.dist-info")
        shutil.rmtree(metadata)
    for pattern in UNUSED:
        for path in [*packages.glob(pattern)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    compile_all(package, packages)


def install_commands(package: Package) -> None:
    """The commands of this package, with links in /usr/bin, and the environment's Python."""
    home, programs = package.root / HOME, package.root / "usr/bin"
    (home / "bin").mkdir()
    programs.mkdir(parents=True)
    if package.name != REPORTS:
        (home / "bin/python3").symlink_to(package.source.python)
        directory = Path(package.source.python).parent
        settings = {"home": directory, "include-system-site-packages": "false"}
        lines = [f"{key} = {value}\n" for key, value in settings.items()]
        (home / "pyvenv.cfg").write_text("".join(lines))
    scripts = tomllib.loads((package.source.root / "pyproject.toml").read_text())["project"][
        "scripts"
    ]
    for name in package.programs:
        module, function = scripts[name].split(":")
        command = home / "bin" / name
        command.write_text(COMMAND.format(home=HOME, module=module, function=function))
        command.chmod(0o755)
        (programs / name).symlink_to(f"/{HOME}/bin/{name}")


def our_wheel(source: Source, directory: Path) -> Path:
    offline = ("--no-index", f"--find-links={wheels(source, 'build')}", "--no-deps")
    wheel = [*PIP, "--python", source.python, "wheel", *offline]
    subprocess.run([*wheel, f"--wheel-dir={directory}", str(source.root)], check=True)
    [path] = directory.glob("*.whl")
    return path


def pip_install(source: Source, target: Path, files: list[Path]) -> None:
    install = [*PIP, "--python", source.python, "install", "--no-index", "--no-deps"]
    install += ["--no-compile", "--root-user-action=ignore", f"--target={target}"]
    subprocess.run([*install, *map(str, files)], check=True)


def wheels(source: Source, name: str) -> Path:
    """A directory with the wheels of requirements/NAME.txt, filled when first needed."""
    requirements = Path(__file__).parent / "requirements" / f"{name}.txt"
    key = hashlib.sha256(requirements.read_bytes() + repr(source.python_version).encode())
    target = CACHE / f"wheels-{name}-{key.hexdigest()[:12]}"
    if not target.is_dir():
        CACHE.mkdir(exist_ok=True)
        with TemporaryDirectory(prefix="wheels-", dir=CACHE) as directory:
            # Renamed only when complete, so that an interrupted download is repeated.
            output = Path(directory) / "output"
            fetch(source, requirements, output)
            output.rename(target)
    return target


def fetch(source: Source, requirements: Path, output: Path) -> None:
    """Download the pinned releases, and build missing wheels with a pinned setuptools."""
    pip = [*PIP, "--python", source.python]
    download = [*pip, "download", "--require-hashes", "--no-deps", f"--dest={output}"]
    subprocess.run([*download, f"--requirement={requirements}"], check=True)
    for archive in sorted(output.glob("*.tar.gz")):
        offline = ("--no-index", f"--find-links={wheels(source, 'build')}", "--no-deps")
        subprocess.run([*pip, "wheel", *offline, f"--wheel-dir={output}", str(archive)], check=True)
        archive.unlink()


def compile_all(package: Package, packages: Path) -> None:
    """Bytecode that is never compared with its source, with the paths of the installed files.

    One process for each distribution, and always the same order in it: whether a string is stored
    once or twice depends on what the process compiled before.
    """
    command = [package.source.python, "-S", "-m", "compileall", "-q"]
    command += ["--invalidation-mode=unchecked-hash", f"-s{package.root}", "-p/"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}

    def compile_one(path: Path) -> None:
        subprocess.run([*command, str(path)], env=environment, check=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        [*pool.map(compile_one, sorted(packages.iterdir()))]
