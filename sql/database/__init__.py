"""Connections, transactions, roles and the version of the schema."""
