"""Quirks: what older releases did differently in the same version of an API, as a table with the source of each.

A quirk changes a request before it is handled, or answers it, or changes its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from minibroker.broker.configs.group_settings import GROUP_SETTINGS
from minibroker.broker.configs.settings import ELIDE, ConfigSource
from minibroker.broker.configs.settings_table import TOPIC_SETTINGS
from minibroker.broker.metadata.partitions import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from minibroker.broker.requests.interceptors import Call
from minibroker.broker.requests.routes import UnanswerableRequest
from minibroker.protocol.apis import ApiKey, get_response_class
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.metadata_records import GROUP_RESOURCE, TOPIC_RESOURCE
from minibroker.protocol.messages.produce import ProduceResponse
from minibroker.protocol.records.batch import HEADER_BYTES, MAGIC, read_header
from minibroker.storage.log import Log
from minibroker.testing.emulation.releases import is_release_or_newer
from minibroker.testing.seen.error_places import iterate_error_places, make_error_answer

FIRST_WITH_KRAFT: Final = "3.3"
FIRST_WITH_UNKNOWN_PRODUCER_ID: Final = "1.0"
FIRST_WITH_SEVERAL_KEYS: Final = 4
FIRST_WITH_ZSTD: Final = 10
KEY_TYPE_OF_TRANSACTIONS: Final = 1
DEFAULT: Final = -1
UNSET: Final = ConfigSource.DEFAULT
TopicAnswer = ProduceResponse.TopicProduceResponse
PartitionAnswer = TopicAnswer.PartitionProduceResponse


# The settings of topics that only Kafka 4.4 has, or none.
# Listed since 4.4, of brokers, topics and groups.
SINCE_4_4: Final = {
    "errors.deadletterqueue.auto.create.topics.enable",
    "errors.deadletterqueue.copy.record.enable",
    "errors.deadletterqueue.group.enable",
    "errors.deadletterqueue.topic.name",
    "errors.deadletterqueue.topic.name.prefix",
    "group.streams.assignors",
    "group.streams.rack.aware.assignment.tags",
    "group.streams.topology.description.plugin.class",
    "log.remote.copy.lag.bytes",
    "log.remote.copy.lag.ms",
    "max.decompressed.message.bytes",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
    "sasl.oauthbearer.allow.unverified.audience",
    "sasl.oauthbearer.allow.unverified.issuer",
    "streams.assignor.name",
    "streams.rack.aware.assignment.tags",
}


class QuirkChange:
    """A quirk applied to one request. It keeps what it needs of the request until the answer."""

    def __init__(self, release: str, call: Call) -> None:
        self.release = release
        self.call = call

    def before_request(self, request: Any) -> Message | None:
        """Change the request and return None, or return the answer to give without running it."""
        return None

    def alter_response(self, response: Any) -> None:
        """Change the answer in place."""


class AutoCreatedTopicUnavailable(QuirkChange):
    """The answer to the request that creates a topic has LEADER_NOT_AVAILABLE."""

    def before_request(self, request: Any) -> Message | None:
        """Remember which of the asked topics do not exist yet. Return None."""
        known = self.call.context.cluster.image.topics
        self._unknown = {asked.name for asked in request.topics or () if asked.name not in known}
        return None

    def alter_response(self, response: Any) -> None:
        """Answer LEADER_NOT_AVAILABLE for topics that the request has created."""
        made = self._unknown & self.call.context.cluster.image.topics.keys()
        for topic in response.topics:
            if topic.name in made and topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                topic.error_code = ErrorCode.LEADER_NOT_AVAILABLE


class AutoCreatedCoordinatorUnavailable(QuirkChange):
    """The first FindCoordinator creates the topic of the coordinator's state, and fails."""

    def before_request(self, request: Any) -> Message | None:
        """Remember whether the coordinator's topic does not exist yet. Return None."""
        state = TRANSACTIONS_TOPIC if request.key_type == KEY_TYPE_OF_TRANSACTIONS else GROUPS_TOPIC
        self._missing = state not in self.call.context.cluster.image.topics
        return None

    def alter_response(self, response: Any) -> None:
        """Answer COORDINATOR_NOT_AVAILABLE if the request has created the coordinator's topic."""
        several = self.call.context.version >= FIRST_WITH_SEVERAL_KEYS
        for answer in (response.coordinators if several else [response]) if self._missing else ():
            if answer.error_code == ErrorCode.NONE:
                answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
                answer.error_message = "" if several else "The coordinator is not available."
                answer.node_id = answer.port = -1
                answer.host = ""


class NoTopicDefaults(QuirkChange):
    """CreateTopics needs a count of partitions and of replicas: -1 is refused as 0 is."""

    def before_request(self, request: Any) -> Message | None:
        """Replace counts of -1, the broker's default, by 0, which is refused. Return None."""
        for topic in request.topics:
            if not topic.assignments:
                topic.num_partitions = 0 if topic.num_partitions == DEFAULT else topic.num_partitions
                topic.replication_factor = 0 if topic.replication_factor == DEFAULT else topic.replication_factor
        return None


class OlderTopicSettings(QuirkChange):
    """DescribeConfigs of a topic includes the settings that Kafka 4 removed, even if they are not set."""

    def before_request(self, request: Any) -> Message | None:
        """Ask for all settings by name if the request names none. Return None."""
        for resource in request.resources:
            if resource.resource_type == TOPIC_RESOURCE and not resource.configuration_keys:
                resource.configuration_keys = [name for name in TOPIC_SETTINGS if name != ELIDE]
        return None


class NoNewerSettings(QuirkChange):
    """The settings that came with 4.4 are listed only where they are set."""

    def alter_response(self, response: Any) -> None:
        """Remove settings that came with 4.4, unless they are set."""
        for result in response.results if self.call.api_key == ApiKey.DESCRIBE_CONFIGS else response.topics:
            if result.configs is not None:
                result.configs = [
                    one for one in result.configs if one.name not in SINCE_4_4 or one.config_source != UNSET
                ]


class NoOffsetsInZooKeeper(QuirkChange):
    """Version 0, which keeps offsets in ZooKeeper, is announced, but refused with KRaft."""

    def before_request(self, request: Any) -> Message | None:
        """Return an answer with UNSUPPORTED_VERSION to version 0, None to let others run."""
        if self.call.context.version > 0:
            return None
        response = make_error_answer(request, get_response_class(self.call.api_key), 0)
        for place in iterate_error_places(response, lambda topic_id: None):
            place.set_code(ErrorCode.UNSUPPORTED_VERSION)
        return response


class NoGenerationCheckOfCommits(QuirkChange):
    """OffsetCommit is accepted from any consumer: the release has no members of groups."""

    def before_request(self, request: Any) -> Message | None:
        """Clear member and generation, so that the commit is accepted from any consumer. Return None."""
        request.generation_id_or_member_epoch = -1
        request.member_id = ""
        return None


class NoUnknownProducers(QuirkChange):
    """A producer that a log does not know must begin with sequence 0. Others are refused, for that partition only."""

    def before_request(self, request: Any) -> Message | None:
        """Take the batches of unknown producers out of the request. Return None. Raises UnanswerableRequest."""
        self._refused: list[tuple[str, int, int]] = []
        topics = self.call.context.cluster.image.topics
        for data in request.topic_data:
            taken = []
            for partition in data.partition_data:
                there = topics[data.name].find_partition(partition.index) if data.name in topics else None
                if there is not None and continues_unknown_sequence(there.log, partition.records):
                    self._refused.append((data.name, partition.index, there.log.log_start_offset))
                else:
                    taken.append(partition)
            data.partition_data = taken
        if self._refused and request.acks == 0:
            raise UnanswerableRequest("a Produce with acks=0 of an unknown producer")
        return None

    def alter_response(self, response: Any) -> None:
        """Add the error of unknown producers for the batches that were taken out."""
        known = is_release_or_newer(self.release, FIRST_WITH_UNKNOWN_PRODUCER_ID)
        code = ErrorCode.UNKNOWN_PRODUCER_ID if known else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        for name, index, log_start_offset in self._refused:
            topic = next(topic for topic in response.responses if topic.name == name)
            refused = PartitionAnswer(
                index=index,
                error_code=code,
                base_offset=-1,
                log_append_time_ms=-1,
                log_start_offset=log_start_offset,
            )
            topic.partition_responses.append(refused)


def continues_unknown_sequence(log: Log, records: memoryview | None) -> bool:
    """Return whether a batch continues a sequence of a producer that the log does not know, or no longer knows."""
    if records is None or len(records) < HEADER_BYTES:
        return False
    header = read_header(records)
    if header.magic != MAGIC or header.producer_id < 0 or header.base_sequence <= 0:
        return False
    return all(producer_id != header.producer_id for producer_id, _ in log.producers.iterate_entries())


class NoZstdForOldFetches(QuirkChange):
    """Fetch before version 10 refuses topics with compression.type=zstd, whatever is stored."""

    def before_request(self, request: Any) -> Message | None:
        """Let the handler refuse zstd to old versions. Return None."""
        self.call.context.refuses_zstd = self.call.context.version < FIRST_WITH_ZSTD
        return None


class NoTaskOffsets(QuirkChange):
    """Members of streams groups are not told how often to say how far their tasks are."""

    def alter_response(self, response: Any) -> None:
        """Clear the interval at which members report task offsets."""
        response.task_offset_interval_ms = 0


class BoundNamedInGroupConfigError(QuirkChange):
    """A group's value beyond a bound is refused with the name of the bound, instead of its value."""

    def before_request(self, request: Any) -> Message | None:
        """Remember the values that the request sets. Return None."""
        self._asked = {
            (resource.resource_name, config.name): config.value
            for resource in request.resources
            if resource.resource_type == GROUP_RESOURCE
            for config in resource.configs
        }
        return None

    def alter_response(self, response: Any) -> None:
        """Replace the messages about values beyond a bound by those that name the bound."""
        for each in response.responses:
            if each.resource_type == GROUP_RESOURCE and each.error_code == ErrorCode.INVALID_CONFIG:
                name = (each.error_message or "").partition(" must be ")[0]
                each.error_message = (
                    self._make_out_of_bounds_message(name, self._asked.get((each.resource_name, name)))
                    or each.error_message
                )

    def _make_out_of_bounds_message(self, name: str, text: str | None) -> str | None:
        """Return the message for a value beyond a bound; None for another."""
        setting = GROUP_SETTINGS.get(name)
        if setting is None or text is None:
            return None
        settings, value = self.call.context.cluster.settings, int(text)
        if setting.minimum is not None and value < settings.get_value(setting.minimum):
            return f"{name} must be greater than or equal to {setting.minimum}"
        if setting.maximum is not None and value > settings.get_value(setting.maximum):
            return f"{name} must be less than or equal to {setting.maximum}"
        return None


class Quirk(NamedTuple):
    """A change and its releases: from `since` on, and before `until`, or up to the newest if that is None."""

    since: str
    until: str | None
    apis: tuple[ApiKey, ...]
    change: Callable[[str, Call], QuirkChange]


QUIRKS: Final = (
    # The answer while the topic goes to ZooKeeper; with KRaft, AutoTopicCreationManager answers as minibroker does.
    Quirk("0.8.2", FIRST_WITH_KRAFT, (ApiKey.METADATA,), AutoCreatedTopicUnavailable),
    # KafkaApis, where it finds a coordinator.
    Quirk("0.8.2", None, (ApiKey.FIND_COORDINATOR,), AutoCreatedCoordinatorUnavailable),
    # KIP-464: the broker's defaults apply in all versions of CreateTopics.
    Quirk("0.10.1", "2.4", (ApiKey.CREATE_TOPICS,), NoTopicDefaults),
    # KIP-724: 4.0 removed the message formats before 2, and their settings.
    Quirk("0.11", "4.0", (ApiKey.DESCRIBE_CONFIGS,), OlderTopicSettings),
    # The definitions of settings in both releases.
    Quirk("0.11", "4.4", (ApiKey.DESCRIBE_CONFIGS, ApiKey.CREATE_TOPICS), NoNewerSettings),
    # KafkaApis of 3.x: requireZkOrThrow; 4.0 removed the version (KIP-896).
    Quirk("3.3", "4.0", (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH), NoOffsetsInZooKeeper),
    # OffsetManager of 0.8.2; group coordinators came with 0.9.
    Quirk("0.8.2", "0.9", (ApiKey.OFFSET_COMMIT,), NoGenerationCheckOfCommits),
    # KIP-360; checkSequence in ProducerStateManager of 0.11 to 2.4.
    Quirk("0.11", "2.5", (ApiKey.PRODUCE,), NoUnknownProducers),
    # KIP-110; 4.0 removed the check with the conversion of records for old clients (KIP-724).
    Quirk("2.1", "4.0", (ApiKey.FETCH,), NoZstdForOldFetches),
    # GroupConfig.validateValues in both releases.
    Quirk("4.0", "4.4", (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS), BoundNamedInGroupConfigError),
    # GroupMetadataManager in both releases; Kafka Streams 4.4 is the first that says it (KIP-1071).
    Quirk("4.2", "4.4", (ApiKey.STREAMS_GROUP_HEARTBEAT,), NoTaskOffsets),
)


def list_quirks(release: str) -> dict[ApiKey, list[Quirk]]:
    """Return the quirks of a release by API."""
    found: dict[ApiKey, list[Quirk]] = {}
    for quirk in QUIRKS:
        if is_release_or_newer(release, quirk.since) and (
            quirk.until is None or not is_release_or_newer(release, quirk.until)
        ):
            for key in quirk.apis:
                found.setdefault(key, []).append(quirk)
    return found
