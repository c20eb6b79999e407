"""The sources of records: plugins, files, standard input."""
