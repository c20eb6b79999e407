"""Alarms for silence: classes, sites and probes of which nothing arrives any more."""
