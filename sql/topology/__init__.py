"""Downtimes entered by hand, and the rows of topology views."""
