"""Fetches feeds over HTTP: whole documents or none, and only changed ones."""
