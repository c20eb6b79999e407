"""Runs of reports: due days, locks, records, publication, seals, and reading them back."""
