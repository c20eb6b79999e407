"""Frozen schema versions: `NNNN/<dialect>.sql`, run in order by Alembic."""
