"""The process: its signals, its clock, the lock of its name."""
