"""Subscribe, batch, load, commit, then ack."""
