"""`kafka-configs`: shows and changes the configs of topics and brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from minibroker.cli.administration import (
    BROKER_RESOURCE,
    DEFAULT_CONFIG,
    TOPIC_RESOURCE,
    connect_client,
    get_all_topics,
    get_configs,
    get_existing_topic,
)
from minibroker.cli.connecting import Bootstrap
from minibroker.cli.kafka_tools.tool_options import choose_action, make_server_options, parse_configs
from minibroker.cli.shared import make_operation_error
from minibroker.cli.topics.topics_command import DELETE, SET

if TYPE_CHECKING:
    from minibroker.client.blocking import Client

TOPICS, BROKERS = TYPES = ("topics", "brokers")
RESOURCES: Final = {TOPICS: TOPIC_RESOURCE, BROKERS: BROKER_RESOURCE}
SOURCES: Final = {  # by the number in DescribeConfigs
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    DEFAULT_CONFIG: "DEFAULT_CONFIG",
}
DYNAMIC: Final = {TOPICS: (1,), BROKERS: (2, 3)}
DEFAULT_BROKER: Final = ""  # the name of all brokers together


@click.command("kafka-configs")
@make_server_options()
@click.option("--describe", is_flag=True)
@click.option("--alter", is_flag=True)
@click.option("--all", "shows_all", is_flag=True, help="With --describe: those that are not changed, too.")
@click.option("--entity-type", type=click.Choice(TYPES))
@click.option("--entity-name")
@click.option("--entity-default", is_flag=True)
@click.option("--topic")
@click.option("--broker")
@click.option("--broker-defaults", is_flag=True)
@click.option("--add-config", type=parse_configs, default="")
@click.option("--delete-config", default="")
def kafka_configs(
    bootstrap: Bootstrap,
    describe: bool,
    alter: bool,
    shows_all: bool,
    add_config: dict[str, str],
    delete_config: str,
    **entity: Any,
) -> None:
    """Show and change the configs of topics and brokers."""
    action = choose_action({"describe": describe, "alter": alter})
    kind, name = _choose_entity(**entity)
    deleted = [each.strip() for each in delete_config.split(",") if each.strip()]
    if action == "alter" and (name is None or not (add_config or deleted)):
        raise click.UsageError("--alter needs a name, and --add-config or --delete-config")
    with connect_client(bootstrap) as client:
        if kind == TOPICS and name is not None:
            get_existing_topic(client, name)
        if action == "alter":
            assert name is not None
            _alter_configs(client, kind, name, add_config, deleted)
            click.echo(f"Completed updating {'' if name else 'default '}config for {_format_entity_name(kind, name)}.")
            return
        for each in _list_entity_names(client, kind) if name is None else [name]:
            _describe_entity(client, kind, each, shows_all)


def _choose_entity(
    entity_type: str | None,
    entity_name: str | None,
    entity_default: bool,
    topic: str | None,
    broker: str | None,
    broker_defaults: bool,
) -> tuple[str, str | None]:
    """Return the type and the name, None for all. Raises click.UsageError."""
    name = DEFAULT_BROKER if entity_default else entity_name
    given = [
        *([(entity_type, name)] if entity_type else []),
        *([(TOPICS, topic)] if topic else []),
        *([(BROKERS, broker)] if broker else []),
        *([(BROKERS, DEFAULT_BROKER)] if broker_defaults else []),
    ]
    if len(given) != 1:
        raise click.UsageError("needs --entity-type topics or brokers, --topic, --broker or --broker-defaults")
    kind, name = given[0]
    if kind == TOPICS and name == DEFAULT_BROKER:
        raise click.UsageError("topics have no --entity-default: their defaults are configs of brokers")
    return kind, name


def _list_entity_names(client: Client, kind: str) -> list[str]:
    return sorted(get_all_topics(client)) if kind == TOPICS else [*map(str, client.fetch_node_ids()), DEFAULT_BROKER]


def _choose_node_for_request(client: Client, kind: str, name: str) -> int | None:
    """Return the broker to ask, None for any. Raises click.ClickException."""
    if kind == TOPICS or name == DEFAULT_BROKER:
        return None
    if not name.isdecimal():
        raise make_operation_error(f"the entity name for brokers must be a valid integer broker id, found: {name}")
    if int(name) not in client.fetch_node_ids():
        raise make_operation_error(f"there is no broker {name}")
    return int(name)


def _describe_entity(client: Client, kind: str, name: str, shows_all: bool) -> None:
    """Print the configs of a topic or broker, as Kafka's tool does."""
    adjective = "Default" if name == DEFAULT_BROKER else "All" if shows_all else "Dynamic"
    click.echo(f"{adjective} configs for {_format_entity_name(kind, name)} are:")
    for config in get_configs(client, RESOURCES[kind], name, _choose_node_for_request(client, kind, name)):
        sources = DYNAMIC[kind][-1:] if name == DEFAULT_BROKER else DYNAMIC[kind]
        if shows_all or config.config_source in sources:
            synonyms = ", ".join(f"{SOURCES[one.source]}:{one.name}={one.value}" for one in config.synonyms)
            sensitive = str(config.is_sensitive).lower()
            click.echo(f"  {config.name}={config.value} sensitive={sensitive} synonyms={{{synonyms}}}")


def _format_entity_name(kind: str, name: str) -> str:
    return f"{kind} in the cluster" if name == DEFAULT_BROKER else f"{kind.removesuffix('s')} {name}"


def _alter_configs(client: Client, kind: str, name: str, added: dict[str, str], deleted: list[str]) -> None:
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest

    of_resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    changes = [(key, SET, value) for key, value in added.items()] + [(key, DELETE, None) for key in deleted]
    configs = [of_resource.AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
    resource = of_resource(resource_type=RESOURCES[kind], resource_name=name, configs=configs)
    node = _choose_node_for_request(client, kind, name)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = client.request(request, client.fetch_controller_id() if node is None else node).responses
    check_error_code(answer.error_code, f"cannot change the configs of {name or 'all brokers'}", answer.error_message)
