"""Profiles: what makes a site available."""
