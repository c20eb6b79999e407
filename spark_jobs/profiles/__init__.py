"""Profiles: which metrics, operations and targets make a report."""
