"""Broker URLs, sockets, TLS and STOMP, each wait under a deadline."""
