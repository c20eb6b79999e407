"""`python -m sam_pipeline.consumer` is `sam-consume`."""

import sys

from sam_pipeline.consumer.cli import main

sys.exit(main())
