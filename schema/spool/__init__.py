"""The directory queue on disk."""
