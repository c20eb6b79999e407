"""What a person types: one module per subcommand of sam-report."""
