"""The subcommands of sam-db, one module each."""
