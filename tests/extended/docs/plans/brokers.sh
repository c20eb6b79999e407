#: place bare
#: skip toml 1: its quorum queue needs a RabbitMQ of its own; tests/extended/test_deployed_brokers.py
#: skip toml 2: in tests/extended/test_deployed_brokers.py, as the three blocks below
#: skip sh 1 2 3: in tests/extended/test_deployed_brokers.py
