"""The results of a load test, as a table and as a page with plots."""
