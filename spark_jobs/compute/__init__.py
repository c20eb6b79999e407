"""The computation of reports; the only folder that uses Spark."""
