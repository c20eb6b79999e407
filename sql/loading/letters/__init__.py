"""Dead letters: records that could not be loaded."""
