"""`kafka-console-producer`: writes a record for each line of its input."""

from __future__ import annotations

from typing import Final

import click

from minibroker.cli.connecting import Bootstrap
from minibroker.cli.kafka_tools.tool_options import (
    check_known_properties,
    is_true_property,
    make_properties_option,
    make_server_options,
    run_command,
)
from minibroker.cli.produce.produce_command import CODECS, produce

PROPERTIES: Final = ("parse.key", "key.separator", "null.marker")
SEPARATOR: Final = "\t"


@click.command("kafka-console-producer")
@make_server_options("--broker-list", "--producer.config", "--producer-property")
@click.option("--topic", required=True)
@make_properties_option("--property", "--reader-property")
@click.option("--compression-codec", type=click.Choice(CODECS), is_flag=False, flag_value="gzip", default="none")
@click.option("--request-required-acks", type=click.Choice(["0", "1", "-1", "all"]), default="all")
def kafka_console_producer(
    bootstrap: Bootstrap,
    topic: str,
    properties: tuple[tuple[str, str], ...],
    compression_codec: str,
    request_required_acks: str,
) -> None:
    """Write a record for each line of the input."""
    given = dict(properties)
    check_known_properties(given, PROPERTIES)
    acks = request_required_acks.replace("-1", "all")
    arguments = ["--compression", compression_codec, "--acks", acks, *_make_produce_options(given), "--", topic]
    run_command(produce, arguments, bootstrap)


def _make_produce_options(properties: dict[str, str]) -> list[str]:
    marker = properties.get("null.marker")
    options = [] if marker is None else ["--null-value", marker]
    if is_true_property(properties, "parse.key"):
        options += ["--key-separator", properties.get("key.separator", SEPARATOR)]
        options += [] if marker is None else ["--null-key", marker]
    return options
