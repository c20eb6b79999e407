"""The environment of Alembic, and the versions of the schema."""
