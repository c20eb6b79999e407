"""Scratch directories, which are removed at the end of a batch job."""

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
"""Variables that are set in a job, where TMPDIR belongs to the job, too."""


def scratch_of(path: str | os.PathLike[str], environ: Mapping[str, str]) -> str | None:
    """The variable of a scratch directory that contains (or is) this path, if there is one."""
    in_a_job = any(environ.get(name) for name in JOB)
    for name in (*SCRATCH, "TMPDIR") if in_a_job else SCRATCH:
        scratch = environ.get(name)
        if not scratch or not os.path.isabs(scratch):
            continue
        directory = os.path.realpath(scratch)
        # PBS names the home directory here, unless jobs have a sandbox.
        if name == "PBS_JOBDIR" and directory == os.path.realpath(environ.get("HOME") or "/"):
            continue
        below = os.path.realpath(path)
        if below == directory or below.startswith(directory.rstrip("/") + "/"):
            return name
    return None
