"""A batch of messages into the class views, or among the dead letters."""
