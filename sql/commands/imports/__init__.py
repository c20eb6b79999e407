"""`sam-db import`: records and topology from elsewhere."""
