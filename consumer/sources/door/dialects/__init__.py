"""What senders of other systems post: their forms, and the answers that they expect."""
