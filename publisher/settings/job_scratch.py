"""Which directories die with the batch job that we run in."""

from __future__ import annotations

import os
from collections.abc import Mapping

SCRATCH = (
    "_CONDOR_SCRATCH_DIR",
    "SLURM_TMPDIR",
    "PBS_JOBDIR",
    "LSF_TMPDIR",
    "EDG_WL_SCRATCH",
    "OSG_WN_TMP",
)
"""Variables that name the scratch directory of a job."""

JOB = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "_CONDOR_JOB_AD", "JOB_ID")
"""Variables that a job has: then TMPDIR, too, is its own."""


def scratch_of(path: str | os.PathLike[str], environ: Mapping[str, str]) -> str | None:
    """The variable that names a scratch directory above (or at) this path, if one does."""
    in_a_job = any(environ.get(name) for name in JOB)
    names = [*SCRATCH, "TMPDIR"] if in_a_job else SCRATCH
    return next((name for name in names if _is_below(path, environ.get(name), name, environ)), None)


def _is_below(
    path: str | os.PathLike[str], scratch: str | None, name: str, environ: Mapping[str, str]
) -> bool:
    if not scratch or not os.path.isabs(scratch):
        return False
    directory = os.path.realpath(scratch)
    # PBS names the home directory here, unless jobs have a sandbox.
    if name == "PBS_JOBDIR" and directory == os.path.realpath(environ.get("HOME") or "/"):
        return False
    below = os.path.realpath(path)
    return below == directory or below.startswith(directory.rstrip("/") + "/")
