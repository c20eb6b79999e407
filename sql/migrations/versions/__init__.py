"""The versions of the schema, `vNNNN.py`; Alembic runs them in order."""
