"""`python -m sql` is `sam-db`."""

import sys

from sql.cli import main

sys.exit(main())
