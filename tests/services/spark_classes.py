"""The archive of `sam-report warm-up`, which spares each run of the tests four seconds of Java.

`python -m tests.services` makes it; without it, runs only start later.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

from sam_pipeline.spark_jobs.config import find_java
from tests.services import ServiceMissing
from tests.services.broker import CACHE


def spark_cache() -> Path:
    """The value of XDG_CACHE_HOME with which `sam-report` finds the archive."""
    # Java ignores an archive of another Java, or of other files of Spark.
    java = Path(find_java() or "").resolve()
    spark = find_spec("pyspark")
    both = f"{java} {spark and spark.origin}".encode()
    return CACHE / f"spark-{hashlib.sha256(both).hexdigest()[:12]}"


def archive() -> Path:
    """The archive, made when it is first needed."""
    from sam_pipeline.spark_jobs.compute.cluster.start import archive_classes

    if find_java() is None:
        raise ServiceMissing("Java", "apt-get install default-jre-headless")
    target = spark_cache() / "sam" / "spark.jsa"
    if not target.exists():
        archive_classes(target)
    return target
