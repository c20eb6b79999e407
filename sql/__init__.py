"""The schema of the database as `.sql` files, and the code that applies, checks and loads it."""
