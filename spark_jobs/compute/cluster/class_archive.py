"""An archive of the classes that Java loads, with which runs start sooner."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from sam_pipeline.spark_jobs.compute.cluster.start import Starter
from sam_pipeline.spark_jobs.config import class_archive
from sam_pipeline.spark_jobs.errors import SparkFailed


def archive_classes(archive: Path) -> None:
    """Store the classes that a run loads; later runs load them from there if they still fit.

    Raises:
        JavaMissing, SparkFailed: see `Starter.start`; or Java wrote no archive.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    new = archive.with_suffix(".new")
    new.unlink(missing_ok=True)
    options = (f"-XX:ArchiveClassesAtExit={new}", "-Xlog:disable")
    with TemporaryDirectory(prefix="sam-report-", ignore_cleanup_errors=True) as files:
        starter = Starter()
        context = starter.start("local[2]", {}, options, files)
        context.parallelize(range(2), 2).map(lambda n: (n, n)).partitionBy(2).collect()
        java = starter.process
        assert java and java.stdin
        java.stdin.close()
        java.wait()
    if not new.exists():
        raise SparkFailed("Java wrote no archive of its classes")
    new.replace(archive)


def archived_classes() -> list[str]:
    """The options with which Java uses the archive; it ignores one of another Java or Spark."""
    archive = class_archive()
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if archive.exists() else []
