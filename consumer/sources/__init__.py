"""The sources of messages: brokers and directory queues."""
