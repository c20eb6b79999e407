"""What both ends of the wire agree on: records, messages, broker URLs, the spool on disk."""
