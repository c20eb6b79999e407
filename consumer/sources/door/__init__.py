"""The HTTP door: a source to which senders post their messages, and which answers each of them."""
