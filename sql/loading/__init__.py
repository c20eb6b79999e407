"""Stores batches of messages in the class views, or as dead letters."""
