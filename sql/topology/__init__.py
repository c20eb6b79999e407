"""Rows of the topology views, and downtimes entered by hand."""
