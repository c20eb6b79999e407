"""What docs/reports.md tells people to type works, in the order of the page, and what it shows."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
from pathlib import Path

from sqlalchemy import text

from schema import command
from spark_jobs.changes import _INPUTS
from spark_jobs.days import month_of
from spark_jobs.errors import SamError
from spark_jobs.groups import Member
from spark_jobs.inputs import REASONS
from spark_jobs.profile_file import read_profile
from spark_jobs import cli
from sql.engine import make_engine, writing
from sql.news import fold
from tests.acceptance.commands import Workplace, embedded
from tests.acceptance.page import DOCS, blocks, read_page
from tests.acceptance.stored import query
from tests.integration.published_days import publish
from tests.integration.report_database import Grid
