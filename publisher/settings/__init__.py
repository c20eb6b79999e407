"""The configuration of the publisher, its secrets and proxies."""
