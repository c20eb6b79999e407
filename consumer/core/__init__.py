"""Take a batch, store it, commit, then ack."""
