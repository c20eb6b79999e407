"""`sam-consume dead-letter`: records that could not be loaded."""
