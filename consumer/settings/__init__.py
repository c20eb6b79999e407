"""The section `[consumer]` of sam.toml and its tables."""
