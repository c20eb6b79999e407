"""Alembic runs this module for each command, in the transaction of the caller or offline."""

from __future__ import annotations

from alembic import context

if context.is_offline_mode():
    context.configure(dialect_name=context.config.attributes["dialect"])
else:
    context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
