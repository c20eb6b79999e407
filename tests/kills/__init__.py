"""Kills consumer, broker and database at random under load and checks that nothing is lost."""
