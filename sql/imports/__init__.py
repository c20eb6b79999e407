"""Loads data from files: records, tables, and exports of GOCDB."""
