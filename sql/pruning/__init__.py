"""Removing old data, whole UTC days at a time."""
