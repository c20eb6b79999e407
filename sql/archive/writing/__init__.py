"""From the database to the files of a day: read, sort, write, commit."""
