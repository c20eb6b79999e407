"""Sources of results looked up at once, statuses kept, changed days marked."""

from __future__ import annotations

from alembic import op

from sql.script import run_version

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    run_version(op.get_bind(), revision)
