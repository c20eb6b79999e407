"""The sources of messages: brokers, directory queues and the HTTP door."""
