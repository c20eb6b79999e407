"""Who loaded what; open dead letters are counted quickly."""

from __future__ import annotations

from alembic import op

from sql.script import run_version

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    run_version(op.get_bind(), revision)
