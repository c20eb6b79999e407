"""Revoking what a publisher said, and restoring what it displaced."""
