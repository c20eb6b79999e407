"""Brokers that take messages over HTTP."""
