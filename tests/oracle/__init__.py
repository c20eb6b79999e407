"""The oracle, a second implementation, and the comparison of Spark with them on random worlds."""
