"""Runs of reports: due, locked, recorded, published, sealed, read."""
