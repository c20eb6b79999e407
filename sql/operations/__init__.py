"""The operation log: what operators did to the data, in a chain of digests."""
