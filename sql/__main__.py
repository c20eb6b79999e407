"""`python -m sam_pipeline.sql` is `sam-db`."""

import sys

from sam_pipeline.sql.cli import main

sys.exit(main())
