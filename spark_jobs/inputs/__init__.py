"""Topology, downtimes, and who is expected to report."""
