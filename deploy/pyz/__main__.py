"""sam-publish in one file. Any version of Python must be able to compile this module."""

import os
import sys

if sys.version_info < (3, 9):  # noqa: UP036
    needed = "Python 3.9 or newer is needed, this is " + ".".join(map(str, sys.version_info[:2]))
    advice = "use another one, as in `python3.11 sam-publish.pyz`"
    sys.stderr.write("sam-publish: error: " + needed + ": " + advice + "\n")
    sys.exit(78)

# Python opens the file again for each import. An upgrade may replace it while `run` waits for its
# plugin, so all imports read the file that is open now. Without /proc they follow its name.
itself = "/proc/self/fd/" + str(os.open(sys.path[0], os.O_RDONLY))
if os.path.exists(itself):
    sys.path[0] = itself

# Bytecode for this Python, if there is any. Importing the sources takes twice as long.
sys.path.insert(0, sys.path[0] + "/" + str(sys.implementation.cache_tag))

if sys.argv[0].endswith("check_sam_publisher"):  # a link to this file
    from sam_pipeline.publisher.commands.nagios import main
else:
    from sam_pipeline.publisher.cli import main

sys.exit(main())
