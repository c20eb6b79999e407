"""Which results, downtimes and exclusions made a figure."""
