"""`sam-consume subscriptions` and `unsubscribe`: what the consumer has made at its brokers."""
