"""Explanations: the results, downtimes and exclusions behind a figure."""
