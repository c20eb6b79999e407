"""What others see of the daemon: status, metrics, systemd."""
