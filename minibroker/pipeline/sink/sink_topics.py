"""The number of partitions of topics. Asking for it creates a topic if brokers create topics automatically."""

from __future__ import annotations

import time
from typing import Final

from minibroker.client.client_errors import error_name, may_pass
from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.sink.sink_errors import WriteFailed
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.metadata import MetadataRequest

_BACKOFF_S: Final = 0.1


class Topics:
    """The partition counts of topics. They are asked for once, and again if a row has a partition beyond them."""

    def __init__(self, client: Client, max_block_ms: int) -> None:
        self._client = client
        self._max_block_ms = max_block_ms
        self._counts: dict[str, int] = {}

    def count(self, topic: str, at_least: int = 1) -> int:
        """Return the number of partitions of a topic. Wait until there are `at_least` so many.

        After `max_block_ms`, raise `WriteFailed` with the missing topic or partition.
        """
        deadline = time.monotonic() + self._max_block_ms / 1000
        while self._counts.get(topic, 0) < at_least:
            code = self._ask(topic)
            if code != ErrorCode.NONE and not may_pass(code):
                raise WriteFailed(f"{self._client.bootstrap_servers}: topic {topic}: {error_name(code)}")
            if self._counts.get(topic, 0) >= at_least:
                break
            if time.monotonic() + _BACKOFF_S > deadline:
                raise WriteFailed(self._missing(topic, at_least, code))
            time.sleep(_BACKOFF_S)
        return self._counts[topic]

    def _ask(self, topic: str) -> int:
        wanted = [MetadataRequest.MetadataRequestTopic(name=topic)]
        answer = self._client.request(MetadataRequest(topics=wanted, allow_auto_topic_creation=True))
        for each in answer.topics:
            if each.error_code == ErrorCode.NONE:
                self._counts[topic] = len(each.partitions)
            return int(each.error_code)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _missing(self, topic: str, at_least: int, code: int) -> str:
        waited = f"after {self._max_block_ms} ms"
        if code != ErrorCode.NONE:
            return f"{self._client.bootstrap_servers}: topic {topic}: {error_name(code)} {waited}"
        return (
            f"{self._client.bootstrap_servers}: partition {at_least - 1} of topic {topic}, which has "
            f"{self._counts[topic]}, is not present in metadata {waited}"
        )
