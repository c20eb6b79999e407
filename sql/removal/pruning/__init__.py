"""Removes old data, whole UTC days at a time."""
