"""Worlds made from a seed: sites, endpoints, downtimes, and the results of their probes."""
