"""The published load test of messaging brokers: producers, consumers, and what arrived when."""
