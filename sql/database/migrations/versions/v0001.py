"""Version 0001: the `.sql` files of the room `sql`, until a release freezes them."""

from __future__ import annotations

from alembic import op

from sam_pipeline.sql.database.script import present_state, run_script

revision = "0001"
down_revision = None


def upgrade() -> None:
    migration = op.get_context()
    for script in present_state(migration.dialect.name):
        if migration.as_sql:
            migration.impl.static_output(script)
        else:
            run_script(op.get_bind(), script)
