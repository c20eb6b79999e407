"""Commands that remove old data, and what a publisher said."""
