"""Closed days read from the files of the archive instead of from the database."""
