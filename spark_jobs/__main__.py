"""`python -m sam_pipeline.spark_jobs` is `sam-report`, like its path, for `spark-submit`."""

import sys
from pathlib import Path

if not __package__:  # run by its path: its folder must not shadow other packages
    sys.path[:] = [path for path in sys.path if Path(path) != Path(__file__).parent]

from sam_pipeline.spark_jobs.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
