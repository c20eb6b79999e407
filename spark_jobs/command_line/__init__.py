"""Options of commands, the period that they select, and tables and comparisons of figures."""
