"""`sam-report warm-up`: an archive of Java's classes, with which runs start sooner."""

from __future__ import annotations

import argparse

from sam_pipeline.schema.program.command import OK, print_done
from sam_pipeline.spark_jobs.config import class_archive, prepare_workers

DESCRIPTION = """\
Start Spark once and store the classes that Java loads, about 90 MB, in $CACHE_DIRECTORY or
$XDG_CACHE_HOME/sam (~/.cache/sam). Each later run starts 1 to 2 s sooner. After an update of Java
or PySpark the archive is ignored: run this command again. To do without it, delete the file.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.description = DESCRIPTION
    command.set_defaults(handler=warm_up)


def warm_up(args: argparse.Namespace) -> int:
    # It is slow to import.
    from sam_pipeline.spark_jobs.compute.cluster.start import archive_classes

    archive = class_archive()
    prepare_workers()
    archive_classes(archive)
    print_done(args, f"{archive}: {archive.stat().st_size / 1e6:.0f} MB")
    return OK
