"""Shared by both ends of the wire: records, messages, broker URLs, the spool on disk."""
