"""One broker each: how a kind of broker takes messages."""
