"""Figures as files for other programs."""
