"""`python -m publisher` is `sam-publish`."""

from publisher.cli import main

raise SystemExit(main())
