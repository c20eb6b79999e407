"""Exports of figures and timelines as files for other programs."""
