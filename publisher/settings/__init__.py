"""The configuration of the publisher, with its secrets and proxies."""
