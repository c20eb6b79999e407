"""Network brokers: durable subscriptions over STOMP."""
