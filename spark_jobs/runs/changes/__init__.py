"""How later runs change the figures of days and months, and why."""
