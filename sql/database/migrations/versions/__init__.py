"""The versions of the schema, `vNNNN.py`; Alembic runs them in order.

A version with `additive = True` promises that programs of the version before work with it, and that
its own programs work with the version before. So it adds tables, views, functions, optional columns
and grants; columns are added at the end of views and staging tables, and whatever older programs
call or select remains. Its programs do without what the catalogue of the database does not have.

A new version also changes the files in `sql/postgresql`, `sql/sqlite` and `sql/both`: they are its
state.
"""
