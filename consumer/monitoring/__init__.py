"""Monitoring of the daemon: status, metrics, systemd."""
