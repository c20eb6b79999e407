"""The sinks of messages: the database, or a directory queue."""
