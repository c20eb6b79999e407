"""Sending messages over STOMP, for the publisher and for relays."""
