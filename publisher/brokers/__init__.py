"""The kinds of brokers: how each takes messages."""
