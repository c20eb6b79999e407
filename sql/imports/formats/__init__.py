"""Readers of the formats of feeds: each makes a `FeedRows` of its files."""
