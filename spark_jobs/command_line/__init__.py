"""What several commands share: options, the requested period, and tables of figures."""
