"""The HTTP door: its contract, and what it does with bad requests."""
