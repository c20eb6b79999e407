"""Where messages come from: brokers and directory queues."""
