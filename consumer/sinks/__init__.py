"""The sinks of messages: the database; or, for a relay, a directory queue or brokers."""
