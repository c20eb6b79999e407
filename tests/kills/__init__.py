"""Consumer, broker and database killed at random under load, and what must be true afterwards."""
