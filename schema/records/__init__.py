"""A record: text to values and back, and the limits on both."""
