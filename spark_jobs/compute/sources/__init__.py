"""Where the results of a run are read from, and the instances that they are of."""
