"""Shared by both ends of the wire: records, messages, broker URLs, the spool on disk."""

VERSION = "0.1.0"
"""As in pyproject.toml; to read it from the installed metadata takes longer than publishing."""
