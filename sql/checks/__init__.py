"""What is wrong with a database."""
