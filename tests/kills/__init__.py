"""Kills and freezes everything under load, and checks that nothing is lost or stored twice."""
