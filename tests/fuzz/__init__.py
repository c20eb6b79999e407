"""Good inputs with something wrong in them, by the million, for whoever reads others' bytes."""
