"""Hours of load with everything on; every record is accounted for, and nothing may grow."""
