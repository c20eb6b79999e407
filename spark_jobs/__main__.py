"""`python -m spark_jobs` is `sam-report`."""

from spark_jobs.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
