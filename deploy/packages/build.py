"""Builds our packages: sam-publish, sam-pipeline and sam-pipeline-reports, as .deb and .rpm.

    python deploy/packages/build.py build/packages
    python deploy/packages/build.py --format deb --package sam-publish build/packages

Both formats are made from one tree of files. The same source, pins and interpreters give the same
bytes: all times are those of the source ($SOURCE_DATE_EPOCH, or the newest commit).

The programs run with Python of the distribution, which the packages require. The network is only
needed for the wheels in requirements/, once; they are kept in .cache/.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import deb
import rpm
from package import Package
from source import Source
from tree import stage

ROOT = Path(__file__).parents[2]
FORMATS: dict[str, Callable[[Package, Path], Path]] = {"deb": deb.write, "rpm": rpm.write}
NAMES = ("sam-publish", "sam-pipeline", "sam-pipeline-reports")


def main() -> None:
    options = parse_options()
    options.output.mkdir(parents=True, exist_ok=True)
    os.umask(0o022)
    with TemporaryDirectory(prefix="sam-packages-") as name:
        source = Source.copied(
            options.source, Path(name, "sam_pipeline"), options.version, options.python
        )
        for package_name in options.package or NAMES:
            package = stage(package_name, source, Path(name, package_name))
            for format_name in options.format or FORMATS:
                path = FORMATS[format_name](package, options.output)
                print(f"{path}: {path.stat().st_size} bytes", flush=True)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, metavar="OUT", help="directory of the packages")
    parser.add_argument(
        "--format", action="append", choices=FORMATS, help="repeatable; default: both"
    )
    parser.add_argument(
        "--package", action="append", choices=NAMES, help="repeatable; default: all"
    )
    parser.add_argument("--version", help="default: that of pyproject.toml")
    parser.add_argument(
        "--source", type=Path, default=ROOT, metavar="DIR", help="default: this checkout"
    )
    parser.add_argument(
        "--python",
        default="/usr/bin/python3",
        metavar="PATH",
        help="the distribution's interpreter that will run the programs (default: %(default)s)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
