"""`python -m sam_pipeline.spark_jobs` is `sam-report`; so is its path, for `spark-submit`."""

import sys
from pathlib import Path

if not __package__:  # run by its path: our profile.py must not hide the standard library's
    sys.path[:] = [place for place in sys.path if Path(place) != Path(__file__).parent]

from sam_pipeline.spark_jobs.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
