"""sam-publish as one file. This module alone is read by any Python, however old."""

import sys

if sys.version_info < (3, 9):  # noqa: UP036
    needed = "Python 3.9 or newer is needed, this is " + ".".join(map(str, sys.version_info[:2]))
    advice = "start the file with another, such as `python3.11 sam-publish.pyz`"
    sys.stderr.write("sam-publish: error: " + needed + ": " + advice + "\n")
    sys.exit(78)

# What is compiled for this Python, if it is there; else the sources, which takes twice as long.
sys.path.insert(0, sys.path[0] + "/" + str(sys.implementation.cache_tag))

from sam_pipeline.publisher.cli import main

sys.exit(main())
