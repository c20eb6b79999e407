"""Random worlds: what Spark says of them must be what the oracle says, to the second."""
