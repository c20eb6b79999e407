"""Tests of consumer/silence."""
