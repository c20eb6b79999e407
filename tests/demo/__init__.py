"""`make demo`: the whole pipeline on this machine, driven by the commands a person would type."""
