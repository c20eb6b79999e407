"""Spark: starting it, watching its jobs, and ending it without leaving anything behind."""
