"""The subcommands of sam-report, a module each."""
