"""The rules of availability as plain functions: no database, no Spark."""
