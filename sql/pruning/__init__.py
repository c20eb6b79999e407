"""Forgetting whole days."""
