"""Shared by all command lines: arguments, configuration, logging, progress."""
