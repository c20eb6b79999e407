"""`python -m sam_pipeline.sql` runs `sam-db`."""

import sys

from sam_pipeline.sql.cli import main

sys.exit(main())
