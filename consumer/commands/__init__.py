"""The commands of sam-consume, one module each, and check_sam_consumer."""
