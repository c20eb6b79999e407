"""Removing data: whole days that are old, and what a publisher said."""
