"""The versions of the schema: `vNNNN.py`, which Alembic runs in order."""
