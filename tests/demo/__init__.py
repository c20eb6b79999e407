"""`make demo`: the whole road on this machine, driven by the commands a person types."""
