"""`python -m consumer` is `sam-consume`."""

import sys

from consumer.cli import main

sys.exit(main())
