"""Exclusions, sealed months and their candidates; runs keep what they have read."""

from __future__ import annotations

from alembic import op

from sql.script import run_version

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    run_version(op.get_bind(), revision)
