"""Our packages, installed as sites install them."""
