"""A small grid made from a seed: sites, endpoints, downtimes, and what their probes sent."""
