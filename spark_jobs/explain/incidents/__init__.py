"""Incidents of sites: how often they fail, for how long, and why."""
