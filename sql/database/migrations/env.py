"""Alembic runs this module for each command, in the transaction of the caller or offline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic import context
from alembic.script import Script

if TYPE_CHECKING:
    from alembic.runtime.migration import MigrationContext, MigrationInfo


def record_oldest_program(
    ctx: MigrationContext, step: MigrationInfo, heads: object, run_args: object
) -> None:
    """Record the oldest version whose programs work with the one that was just applied."""
    version = step.up_revision
    assert isinstance(version, Script)
    is_additive = getattr(version.module, "additive", False) is True
    oldest = version.down_revision if is_additive else version.revision
    ctx.execute(f"INSERT INTO compatibility VALUES ('{version.revision}', '{oldest}')")


if context.is_offline_mode():
    context.configure(
        dialect_name=context.config.attributes["dialect"],
        on_version_apply=record_oldest_program,
    )
else:
    context.configure(
        connection=context.config.attributes["connection"],
        on_version_apply=record_oldest_program,
    )
context.run_migrations()
