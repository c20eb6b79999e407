"""Fetches feeds over HTTP: whole documents or none, and only what has changed."""
