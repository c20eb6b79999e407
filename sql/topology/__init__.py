"""Rows of the topology views, and downtimes entered on the command line."""
