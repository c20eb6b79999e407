"""The first broker that confirms, else the spool."""
