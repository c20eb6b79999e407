"""The road: results, topology, downtimes, dead letters, reports."""

from __future__ import annotations

from alembic import op

from sql.script import run_version

revision = "0001"
down_revision = None


def upgrade() -> None:
    run_version(op.get_bind(), revision)
