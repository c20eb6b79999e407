"""`python -m sam_pipeline.publisher` is `sam-publish`."""

from sam_pipeline.publisher.cli import main

raise SystemExit(main())
