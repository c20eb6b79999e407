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
sources = sys.path[0]
bytecode = sources + "/" + str(sys.implementation.cache_tag)
sys.path.insert(0, bytecode)


class WithoutBytecode:
    """Finds modules of which there are only the sources, after all other finders."""

    @staticmethod
    def find_spec(name, path=None, target=None):  # type: ignore[no-untyped-def]
        if not name.startswith("sam_pipeline.") or not path:
            return None
        from importlib.machinery import PathFinder

        entries = [entry.replace(bytecode, sources, 1) for entry in path]
        return None if entries == list(path) else PathFinder.find_spec(name, entries)


sys.meta_path.append(WithoutBytecode)

if sys.argv[0].endswith("check_sam_publisher"):  # a link to this file
    from sam_pipeline.publisher.commands.nagios import main
else:
    from sam_pipeline.publisher.cli import main

sys.exit(main())
