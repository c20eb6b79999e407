"""`sam.toml`: its files, and a section of it as an instance of a class."""
