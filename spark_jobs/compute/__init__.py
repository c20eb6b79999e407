"""From results to published figures; the only folder with Spark."""
