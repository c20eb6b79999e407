"""Problems of a database: finding and repairing them."""
