"""What a cluster has besides its records: topics, configs, users, ACLs, quotas, and the offsets of groups.

It asks by the protocol, so it works with any Kafka. Passwords and SCRAM secrets cannot be asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minibroker.cli.administration import TOPIC_RESOURCE, TopicPartition, get_all_topics
from minibroker.cli.groups.groups_command import list_groups_of_node
from minibroker.cli.groups.groups_facts import fetch_committed_offsets
from minibroker.cli.security.acls_command import ListedAcl, list_acls_of_cluster
from minibroker.cli.security.quotas_command import ListedQuota, list_quotas_of_cluster
from minibroker.cli.security.users_command import ListedUser, list_users_of_cluster

if TYPE_CHECKING:
    from minibroker.client.blocking import Client

BROKER_RESOURCE: Final = 4
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32
# The sources of values (KIP-226) that a change at run time made, for one resource or for all brokers.
DYNAMIC: Final = {TOPIC_RESOURCE: 1, BROKER_RESOURCE: 3, CLIENT_METRICS_RESOURCE: 7, GROUP_RESOURCE: 8}
KINDS: Final = {BROKER_RESOURCE: "broker", CLIENT_METRICS_RESOURCE: "client-metrics", GROUP_RESOURCE: "group"}
DESCRIBED_AT_ONCE: Final = 1000
WITH_OFFSETS: Final = ("classic", "consumer")  # types of groups that commit offsets which tools can set elsewhere


class HandoverTopic(NamedTuple):
    """A topic that is not internal, with the configs that were set for it."""

    name: str
    partitions: int
    replicas: int
    configs: dict[str, str]


class DynamicConfigs(NamedTuple):
    """Configs that were set at run time: of a `group`, of `client-metrics`, or, without a name, of every `broker`."""

    kind: str
    name: str
    configs: dict[str, str]

    @property
    def resource_description(self) -> str:
        """Return whose configs these are, for a sentence, like "the group 'orders'"."""
        return f"the {self.kind} {self.name!r}" if self.name else "all brokers"


class HandoverState(NamedTuple):
    """What a handover is about; `left_out` says in sentences what no format has."""

    source: str
    topics: list[HandoverTopic]
    configs: list[DynamicConfigs]
    users: list[ListedUser]
    acls: list[ListedAcl]
    quotas: list[ListedQuota]
    offsets: dict[str, dict[TopicPartition, int]]
    settings: list[Any]  # of one broker, as DescribeConfigs describes them
    left_out: list[str]


def collect_state(client: Client, source: str) -> HandoverState:
    """Ask a cluster for all that another one needs to take over. Raises `ClientError`."""
    left_out_notes: list[str] = []
    known = get_all_topics(client)
    topics = list(_iterate_topics(client, known, left_out_notes))
    configs = list(_iterate_dynamic_configs(client, left_out_notes))
    offsets = dict(_iterate_offsets(client, known, left_out_notes))
    node = str(min(client.fetch_node_ids()))
    ((_, settings),) = _iterate_configs(client, BROKER_RESOURCE, [node])
    return HandoverState(
        source,
        topics,
        configs,
        _read_list_if_supported(lambda: list_users_of_cluster(client)),
        _read_list_if_supported(lambda: list_acls_of_cluster(client)),
        _read_list_if_supported(lambda: list_quotas_of_cluster(client)),
        offsets,
        settings,
        left_out_notes,
    )


def _read_list_if_supported(read_list: Any) -> list[Any]:
    """Return what `read_list` returns; an empty list if the cluster has no authorizer or does not know the request."""
    from minibroker.client.client_errors import ClientError
    from minibroker.protocol.errors import ErrorCode

    try:
        found: list[Any] = read_list()
    except ClientError as error:
        if error.code not in (ErrorCode.SECURITY_DISABLED, ErrorCode.UNSUPPORTED_VERSION):
            raise
        return []
    return found


def _iterate_topics(
    client: Client, topics_by_name: dict[str, Any], left_out_notes: list[str]
) -> Iterator[HandoverTopic]:
    names = sorted(name for name, topic in topics_by_name.items() if not topic.is_internal)
    for name, entries in _iterate_configs(client, TOPIC_RESOURCE, names):
        partitions = topics_by_name[name].partitions
        replicas = max(len(each.replica_nodes) for each in partitions)
        yield HandoverTopic(
            name,
            len(partitions),
            replicas,
            _select_changed_configs(TOPIC_RESOURCE, f"topic {name}", entries, left_out_notes),
        )


def _iterate_dynamic_configs(client: Client, left_out_notes: list[str]) -> Iterator[DynamicConfigs]:
    for kind, names in ((BROKER_RESOURCE, [""]), *_list_resources_with_configs(client).items()):
        for name, entries in _iterate_configs(client, kind, names):
            found = DynamicConfigs(KINDS[kind], name, {})
            found.configs.update(_select_changed_configs(kind, found.resource_description, entries, left_out_notes))
            if found.configs:
                yield found


def _list_resources_with_configs(client: Client) -> dict[int, list[str]]:
    """Return by resource type the names of groups and client metrics with configs; none from Kafka before 4.1."""
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.configs import ListConfigResourcesRequest

    def list_resources() -> list[tuple[int, str]]:
        kinds = [CLIENT_METRICS_RESOURCE, GROUP_RESOURCE]
        answer = client.request(ListConfigResourcesRequest(resource_types=kinds), lowest=1)
        check_error_code(answer.error_code, "cannot list what has configs")
        return [(each.resource_type, each.resource_name) for each in answer.config_resources]

    names: dict[int, list[str]] = {}
    for kind, name in sorted(_read_list_if_supported(list_resources)):
        names.setdefault(kind, []).append(name)
    return names


def _select_changed_configs(kind: int, resource: str, entries: list[Any], left_out_notes: list[str]) -> dict[str, str]:
    """Return configs that were set at run time; note secrets, and those that Apache Kafka lacks, as left out."""
    from minibroker.broker.configs.settings_table import BROKER_SETTINGS, TOPIC_SETTINGS
    from minibroker.broker.configs.settings_values import format_setting_value

    table = TOPIC_SETTINGS if kind == TOPIC_RESOURCE else BROKER_SETTINGS
    kept = {}
    for entry in entries:
        if entry.config_source != DYNAMIC[kind]:
            continue
        row = table.get(entry.name)
        if entry.is_sensitive or entry.value is None:
            left_out_notes.append(f"the secret {entry.name} of {resource}")
        elif row is not None and not row.in_kafka:
            left_out_notes.append(f"{entry.name}={entry.value} of {resource}, which Apache Kafka 4.4 does not have")
        elif kind != BROKER_RESOURCE or row is None or entry.value != format_setting_value(row.default):
            # New clusters set the default of min.insync.replicas for all brokers. It is none of another cluster's.
            kept[entry.name] = entry.value
    return kept


def _iterate_configs(client: Client, kind: int, names: list[str]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the configs of each resource of a kind by its name, in order. Raises `ClientError`."""
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.configs import DescribeConfigsRequest

    for start in range(0, len(names), DESCRIBED_AT_ONCE):
        resources = [
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=None
            )
            for name in names[start : start + DESCRIBED_AT_ONCE]
        ]
        node = int(names[0]) if kind == BROKER_RESOURCE and names[0] else None
        request = DescribeConfigsRequest(resources=resources, include_synonyms=True)
        answer = client.request(request, node, lowest=1)  # version 0 has no sources of values
        for result in answer.results:
            check_error_code(
                result.error_code, f"cannot get the configs of {result.resource_name}", result.error_message
            )
            yield result.resource_name, sorted(result.configs, key=lambda entry: entry.name)


def _iterate_offsets(
    client: Client, topics_by_name: dict[str, Any], left_out_notes: list[str]
) -> Iterator[tuple[str, dict[TopicPartition, int]]]:
    """Yield the committed offsets of each group for topics that exist."""
    groups = [row for node in client.fetch_node_ids() for row in list_groups_of_node(client, node)]
    for row in sorted(groups, key=lambda row: row["group"]):
        if row["type"] not in WITH_OFFSETS:
            left_out_notes.append(
                f"the offsets of {row['group']}, a {row['type']} group: Kafka has no tool that sets them"
            )
            continue
        offsets = {place: each.offset for place, each in sorted(fetch_committed_offsets(client, row["group"]).items())}
        kept = {place: offset for place, offset in offsets.items() if place[0] in topics_by_name}
        if kept:
            yield row["group"], kept
