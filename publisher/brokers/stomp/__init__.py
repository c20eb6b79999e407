"""Brokers that speak STOMP."""
