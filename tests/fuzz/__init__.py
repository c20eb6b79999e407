"""Damaged inputs, by the million, for everything that parses foreign bytes."""
