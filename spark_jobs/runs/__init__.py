"""Runs of reports: what is due, locks, records, publication, seals, and reading them back."""
