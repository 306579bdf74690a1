"""The tools, each of which is imported only when it is run."""

from __future__ import annotations

from typing import Final

import click

from minibroker.cli.shared import OneLineGroup

TOOLS: Final = {
    "kafka-broker-api-versions": "kafka_broker_api_versions",
    "kafka-cluster": "kafka_cluster",
    "kafka-configs": "kafka_configs",
    "kafka-console-consumer": "kafka_console_consumer",
    "kafka-console-producer": "kafka_console_producer",
    "kafka-consumer-groups": "kafka_consumer_groups",
    "kafka-get-offsets": "kafka_get_offsets",
    "kafka-topics": "kafka_topics",
}


@click.group(
    "kafka_tools",
    cls=OneLineGroup,
    modules={name: f"minibroker.cli.kafka_tools.{module}" for name, module in TOOLS.items()},
)
def main() -> None:
    """Kafka's tools, as far as minibroker has them."""


if __name__ == "__main__":
    main()
