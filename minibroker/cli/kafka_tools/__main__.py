"""The tools, each of which is imported only when it is run."""

from __future__ import annotations

from typing import Final

import click

from minibroker.cli.shared import OneLineGroup, print_help_if_alone

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
    invoke_without_command=True,
)
@click.pass_context
def main(context: click.Context) -> None:
    """Kafka's tools, as far as minibroker has them."""
    print_help_if_alone(context)


if __name__ == "__main__":
    main()
