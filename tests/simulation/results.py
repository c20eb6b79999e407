"""Where the outcomes of the scenarios are, and the names of the brokers in print."""

from __future__ import annotations

from pathlib import Path

RESULTS = Path(__file__).with_name("results.json")
NAMES = {"activemq": "ActiveMQ", "artemis": "Artemis", "rabbitmq": "RabbitMQ"}
