"""Imports of records and tables from files, and of feeds of topology and downtimes."""
