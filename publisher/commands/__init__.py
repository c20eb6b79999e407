"""The subcommands of sam-publish, one module each."""
