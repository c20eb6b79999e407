"""Alembic runs this for every command: its transaction is the one the caller has opened."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
