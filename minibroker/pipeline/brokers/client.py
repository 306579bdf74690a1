"""The pipeline's client: `minibroker.client` with Spark's settings, and the partitions of topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from minibroker.client import blocking
from minibroker.client.client_errors import ClientError, SettingError
from minibroker.client.connection_settings import INT32_MAX, ClientSettings, RemainingSettings
from minibroker.pipeline.java import read_store_as_pem
from minibroker.pipeline.log_source import OptionError, TopicPartition
from minibroker.protocol.errors import ErrorCode

CLIENT_ID: Final = "minibroker-pipeline"
# Spark's own connector refuses these too. The text says what to do instead.
REFUSED: Final = {
    "auto.offset.reset": "use the option startingOffsets",
    "enable.auto.commit": "offsets are kept by Spark, and none are committed",
    "interceptor.classes": "interceptors are Java classes",
    "key.deserializer": "keys are bytes: cast the column",
    "value.deserializer": "values are bytes: cast the column",
    "key.serializer": "keys are bytes: cast the column",
    "value.serializer": "values are bytes: cast the column",
    "bootstrap.servers": "it is set already",
}
# Their only allowed value, which is also the default.
FIXED: Final = {"check.crcs": "true", "allow.auto.create.topics": "false"}


def make_client_settings(bootstrap_servers: str, settings: Mapping[str, str], client_id: str = "") -> ClientSettings:
    """Return the settings of a client. Raises `OptionError` if one is invalid."""
    rest = RemainingSettings(settings, known=FIXED)
    for name in sorted(rest.keys() & REFUSED.keys()):
        raise OptionError(f"kafka.{name} cannot be set: {REFUSED[name]}")
    for name in sorted(rest.keys() & FIXED.keys()):
        value = rest.pop(name)
        if value.strip().lower() != FIXED[name]:
            raise OptionError(f"kafka.{name} can only be {FIXED[name]}, not {value!r}")
    rest["bootstrap.servers"] = bootstrap_servers
    rest.setdefault("receive.message.max.bytes", str(INT32_MAX))  # a batch may be larger than the fetch size
    with translate_errors():
        return ClientSettings(rest, client_id, read_store_as_pem)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise the client's errors about settings as `OptionError`."""
    try:
        yield
    except SettingError as error:
        raise OptionError(f"kafka.{error}") from None


class Client(blocking.Client):
    """Connections to the nodes of one cluster, opened when they are first needed. Not thread-safe, and not picklable.

    `settings` are the options that begin with `kafka.`, without that prefix. Raises `OptionError` if one is invalid.
    """

    def __init__(self, bootstrap_servers: str, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(make_client_settings(bootstrap_servers, settings or {}, CLIENT_ID))
        self.bootstrap_servers = bootstrap_servers

    def list_partitions(self, topics: Iterable[str] | None = None, *, missing_ok: bool = False) -> list[TopicPartition]:
        """Return the partitions of these topics, or of all topics, sorted.

        Internal topics are included only if they are named. Raises `ClientError` if a topic does not exist, unless
        `missing_ok`.
        """
        named = None if topics is None else sorted(set(topics))
        return sorted(self.retry(lambda: self._list_partitions_of_topics(named, missing_ok)))

    def _list_partitions_of_topics(self, topics: list[str] | None, missing_ok: bool) -> list[TopicPartition]:
        found = []
        for topic in self.fetch_metadata(topics).topics:
            if topics is None and topic.is_internal:
                continue
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                if missing_ok:
                    continue
                raise ClientError(f"{self.bootstrap_servers}: topic {topic.name} does not exist", code=topic.error_code)
            if topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
                self.check(topic.error_code, f"topic {topic.name}")
            found += [TopicPartition(topic.name, each.partition_index) for each in topic.partitions]
        return found
