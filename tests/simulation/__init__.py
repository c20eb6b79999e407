"""A model of publishers, brokers, consumers and the database, with measured service times."""
