"""The pipeline's client: `minibroker.client` with Spark's settings, and the partitions of topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from minibroker.client import blocking
from minibroker.client.client_errors import ClientError
from minibroker.pipeline.brokers.client_settings import make_client_settings
from minibroker.pipeline.log_source import TopicPartition
from minibroker.protocol.errors import ErrorCode

CLIENT_ID: Final = "minibroker-pipeline"


class Client(blocking.Client):
    """Connections to the nodes of one cluster, opened when they are first needed. Not thread-safe, and not picklable.

    `settings` are the options that begin with `kafka.`, without that prefix. Raises `OptionError` if one is invalid.
    """

    def __init__(self, bootstrap_servers: str, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(make_client_settings(bootstrap_servers, settings or {}, CLIENT_ID))
        self.bootstrap_servers = bootstrap_servers

    def partitions(self, topics: Iterable[str] | None = None, *, missing_ok: bool = False) -> list[TopicPartition]:
        """Return the partitions of these topics, or of all topics, sorted.

        Internal topics are included only if they are named. Raises `ClientError` if a topic does not exist, unless
        `missing_ok`.
        """
        named = None if topics is None else sorted(set(topics))
        return sorted(self.retry(lambda: self._list_partitions_of(named, missing_ok)))

    def _list_partitions_of(self, named: list[str] | None, missing_ok: bool) -> list[TopicPartition]:
        found = []
        for topic in self.metadata(named).topics:
            if named is None and topic.is_internal:
                continue
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                if missing_ok:
                    continue
                raise ClientError(f"{self.bootstrap_servers}: topic {topic.name} does not exist", code=topic.error_code)
            if topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
                self.check(topic.error_code, f"topic {topic.name}")
            found += [TopicPartition(topic.name, each.partition_index) for each in topic.partitions]
        return found
