"""Tests of the model, and of what was measured for it."""
