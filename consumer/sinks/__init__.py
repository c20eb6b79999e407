"""Where messages go: the database, or a directory queue."""
