"""A look at messages that pass, and at what they would become: nothing is stored or taken."""
