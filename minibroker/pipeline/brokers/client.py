"""A client of any Kafka cluster: one request to one node, at the version that both sides know, and where to send it.

kafka-python keeps the connections and knows the messages. What a request means, and which errors of an answer may pass
with time, is its sender's business, who has `check` and `retry` for it.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self, TypeVar

from kafka import errors
from kafka.future import Future
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from minibroker.pipeline.brokers.client_settings import ClientSettings
from minibroker.pipeline.brokers.tokens import TokenError
from minibroker.pipeline.log_source import PipelineError, TopicPartition
from minibroker.protocol.errors import ErrorCode

# Silent unless somebody listens: what goes wrong is in the error that is raised.
logging.getLogger("kafka").addHandler(logging.NullHandler())

DEFAULT_CLIENT_ID: Final = "minibroker-pipeline"
LEAST_ATTEMPT_MS: Final = 5_000  # what is asked once has a chance, however short the time for asking again is
MAX_TIMEOUT_MS: Final = (1 << 31) - 1
COORDINATOR_TYPES: Final = {"group": 0, "transaction": 1}
UNREACHABLE: Final = (errors.KafkaConnectionError, errors.NodeNotReadyError, errors.RequestTimedOutError)
# What may come out of a connection: kafka-python's errors, no token, an answer in SASL that is none.
FAILURES: Final = (errors.KafkaError, TokenError, OSError, ValueError)

Answer = TypeVar("Answer")


class ClientError(PipelineError):
    """An error of a cluster, in one line; `retriable` if it may pass, `code` if the cluster said why."""

    def __init__(self, message: str, retriable: bool = False, code: int | None = None) -> None:
        super().__init__(message)
        self.retriable = retriable
        self.code = code


class Leader(NamedTuple):
    """The node that leads a partition, and since which epoch (-1: unknown)."""

    node_id: int
    epoch: int


class Client:
    """Connections to the nodes of one cluster, made when they are first needed. For one thread, and not to be pickled.

    `settings` are those that Spark's users write after `kafka.`, without that. Raises `OptionError` for one that is
    not understood.
    """

    def __init__(
        self, bootstrap_servers: str, settings: Mapping[str, str] | None = None, client_id: str = DEFAULT_CLIENT_ID
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.settings = ClientSettings(bootstrap_servers, settings or {}, client_id)
        self._net = NetworkSelector(slow_task_threshold_secs=0)
        self._manager = KafkaConnectionManager(self._net, **self.settings.connection())
        self._leaders: dict[TopicPartition, Leader] = {}
        self._coordinators: dict[tuple[str, str], int] = {}
        self._reasons: dict[int | str | None, Exception] = {}  # why a node could not be reached the last time
        self._deadline = float("inf")  # until when what is tried again may take, by the monotonic clock

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._manager.close()
        self._net.close()

    # Requests

    def request(self, message: Any, node_id: int | None = None, timeout_ms: int | None = None) -> Any:
        """Send a request of kafka-python's to a node (any, if none is named) and give its answer.

        It waits for a connection, and tries again for one, as long as `timeout_ms` (else `request.timeout.ms`) allows;
        but a request that has been sent is not sent twice. Within `retry` its time is bounded by that of the whole.
        Raises `ClientError`.
        """
        timeout_ms = timeout_ms or self.settings.request_timeout_ms
        deadline = min(time.monotonic() + timeout_ms / 1000, self._deadline)
        for backoff in self._backoffs():
            node = self._node(node_id)
            patience_ms = min(timeout_ms, self._left_ms())
            try:
                return self._awaited(self._begun(message, node, patience_ms), node, patience_ms)
            except FAILURES as error:
                failure = self._failure(error, message, node)
                if not failure.retriable or _was_sent(message) or time.monotonic() + backoff > deadline:
                    raise failure from None
            self._net.run(self._net.sleep, backoff)
        raise AssertionError("backoffs do not end")

    def send(self, message: Any, node_id: int) -> Future:
        """Send a request and do not wait: its answer travels while the caller does something else. See `wait`."""
        future = self._begun(message, node_id, self.settings.request_timeout_ms)
        self._net.drain()
        return future

    def wait(self, future: Future, node_id: int) -> Any:
        """The answer to a request of `send`. Raises `ClientError`."""
        try:
            return self._awaited(future, node_id, self.settings.request_timeout_ms)
        except FAILURES as error:
            raise self._failure(error, None, node_id) from None

    def retry(self, action: Callable[[], Answer], timeout_ms: int | None = None) -> Answer:
        """Call `action` until it raises no retriable `ClientError`, for `default.api.timeout.ms` at most.

        Between two calls the metadata is forgotten, so that `leader` and `coordinator` ask again.
        """
        outer = self._deadline
        self._deadline = min(outer, time.monotonic() + (timeout_ms or self.settings.api_timeout_ms) / 1000)
        try:
            for backoff in self._backoffs():
                try:
                    return action()
                except ClientError as error:
                    if not error.retriable or time.monotonic() + backoff > self._deadline:
                        raise
                self.refresh()
                self._net.run(self._net.sleep, backoff)
        finally:
            self._deadline = outer
        raise AssertionError("backoffs do not end")

    def check(self, code: int, what: str, node_id: int | None = None, message: str | None = None) -> None:
        """Raise `ClientError` unless an error code of an answer is 0. `what` was asked: "reading topic-0 at 17"."""
        if code != 0:
            name = ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"
            detail = f" ({message})" if message else ""
            retriable = bool(errors.for_code(code).retriable)
            raise ClientError(f"{self.address(node_id)}: {what}: {name}{detail}", retriable, code)

    # Where things are

    def refresh(self) -> None:
        """Forget which nodes lead partitions and coordinate groups and transactions: they are asked for again."""
        self._leaders.clear()
        self._coordinators.clear()

    def partitions(self, topics: Iterable[str] | re.Pattern[str] | None = None) -> list[TopicPartition]:
        """The partitions of the named topics, of those whose whole name matches, or of all, sorted.

        Internal topics are among them only if they are named. Raises `ClientError` for a topic that does not exist.
        """
        named = None if topics is None or isinstance(topics, re.Pattern) else sorted(set(topics))
        return sorted(self.retry(lambda: self._described(named, topics)))

    def leader(self, partition: TopicPartition) -> Leader:
        """The node that leads a partition. Raises `ClientError` if it does not exist or has no leader in time."""
        found = self._leaders.get(partition)
        return found if found is not None else self.retry(lambda: self._found_leader(partition))

    def coordinator(self, kind: Literal["group", "transaction"], key: str) -> int:
        """The node that coordinates a group or a transactional id. Raises `ClientError`."""
        found = self._coordinators.get((kind, key))
        return found if found is not None else self.retry(lambda: self._found_coordinator(kind, key))

    def address(self, node_id: int | str | None) -> str:
        """`host:port` of a node, as it is said in errors; of no node, the bootstrap servers."""
        node = None if node_id is None else self._manager.cluster.broker_metadata(node_id)
        return self.bootstrap_servers if node is None else f"{node.host}:{node.port}"

    # How

    def _backoffs(self) -> Iterable[float]:
        """Seconds to wait between attempts: doubling, without end."""
        backoff_ms = self.settings.retry_backoff_ms
        while True:
            yield backoff_ms / 1000
            backoff_ms = min(2 * backoff_ms, self.settings.retry_backoff_max_ms)

    def _left_ms(self) -> int:
        """Return what is left of the time for trying again, but enough for one attempt."""
        left_ms = (self._deadline - time.monotonic()) * 1000
        return int(min(max(left_ms, LEAST_ATTEMPT_MS), MAX_TIMEOUT_MS))

    def _node(self, node_id: int | None) -> int | str:
        """The node itself, else one that is known, else a bootstrap server that did not fail just now."""
        if node_id is not None:
            return node_id
        known = self._manager.least_loaded_node()
        if known is not None:
            return known  # type: ignore[no-any-return]
        servers = [broker.node_id for broker in self._manager.cluster.bootstrap_brokers()]
        return min(servers, key=self._manager.connection_delay)  # type: ignore[no-any-return]

    def _begun(self, message: Any, node: int | str, timeout_ms: int) -> Future:
        """Write a request as soon as there is a connection; return the future of its answer."""

        def send() -> Future:
            # A broken connection starts no refresh of metadata: that is the business of `retry`.
            connection = self._manager.get_connection(node, refresh_metadata_on_err=False)
            return connection.send_request(message, request_timeout_ms=timeout_ms)

        return self._net.call_soon_with_future(send)

    def _awaited(self, future: Future, node: int | str, timeout_ms: int) -> Any:
        """The answer, or the error that came instead. kafka-python itself waits for a TLS handshake without end."""
        self._net.poll(timeout_ms=timeout_ms, future=future)
        if not future.is_done:
            self._manager.close(node)
            raise errors.RequestTimedOutError(f"no answer in {timeout_ms} ms")
        if future.exception is not None:
            raise future.exception
        return future.value

    def _failure(self, error: Exception, message: Any, node: int | str | None) -> ClientError:
        """Return kafka-python's error as one line, and whether it may pass."""
        if isinstance(error, errors.NodeNotReadyError):
            error = self._reasons.get(node, error)  # it failed before, and that failure tells more
        elif isinstance(error, errors.KafkaConnectionError):
            self._reasons[node] = error
        cause = error.__context__
        fatal = isinstance(cause, ssl.SSLError)
        text = f"TLS: {cause.reason or cause}" if isinstance(cause, ssl.SSLError) else _words(error)
        what = "" if message is None else f"{type(message).__name__.removesuffix('Request')}: "
        retriable = not fatal and isinstance(error, UNREACHABLE)
        return ClientError(f"{self.address(node)}: {what}{text}", retriable)

    def _metadata(self, topics: list[str] | None) -> Any:
        """Ask for topics (None: all) and note all nodes, and the leaders of the topics' partitions."""
        wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
        answer = self.request(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        self._manager.cluster.update_metadata(answer)
        if not answer.brokers:
            raise ClientError(f"{self.bootstrap_servers}: the cluster names no nodes yet", retriable=True)
        for topic in answer.topics:
            for each in topic.partitions:
                if each.leader_id >= 0:
                    self._leaders[TopicPartition(topic.name, each.partition_index)] = Leader(
                        each.leader_id, each.leader_epoch
                    )
        return answer

    def _described(
        self, named: list[str] | None, topics: Iterable[str] | re.Pattern[str] | None
    ) -> list[TopicPartition]:
        found = []
        for topic in self._metadata(named).topics:
            if named is None and (
                topic.is_internal or (isinstance(topics, re.Pattern) and not topics.fullmatch(topic.name))
            ):
                continue
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise ClientError(f"{self.bootstrap_servers}: topic {topic.name} does not exist", code=topic.error_code)
            if topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
                self.check(topic.error_code, f"topic {topic.name}")
            found += [TopicPartition(topic.name, each.partition_index) for each in topic.partitions]
        return found

    def _found_leader(self, partition: TopicPartition) -> Leader:
        for topic in self._metadata([partition.topic]).topics:
            if topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
                self.check(topic.error_code, f"topic {topic.name}")
            if all(each.partition_index != partition.partition for each in topic.partitions):
                raise ClientError(
                    f"{self.bootstrap_servers}: {partition} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
        if partition not in self._leaders:
            message = f"{self.bootstrap_servers}: {partition} has no leader"
            raise ClientError(message, retriable=True, code=ErrorCode.LEADER_NOT_AVAILABLE)
        return self._leaders[partition]

    def _found_coordinator(self, kind: str, key: str) -> int:
        answer = self.request(FindCoordinatorRequest(key=key, key_type=COORDINATOR_TYPES[kind], max_version=3))
        self.check(answer.error_code, f"coordinator of {kind} {key}", message=answer.error_message)
        if self._manager.cluster.broker_metadata(answer.node_id) is None:
            self._metadata([])
        self._coordinators[kind, key] = answer.node_id
        return answer.node_id  # type: ignore[no-any-return]


def _was_sent(message: Any) -> bool:
    """kafka-python settles a request's version in the moment in which it is written."""
    return message.API_VERSION is not None


def _words(error: Exception) -> str:
    """An error of kafka-python in words: its class's name without "Kafka" and "Error", and what it says."""
    if type(error) is errors.KafkaConnectionError and error.args:
        refused = re.fullmatch(r"([0-9]+) E[A-Z]+", str(error.args[0]))
        return f"no connection: {os.strerror(int(refused[1])) if refused else error.args[0]}"
    name = type(error).__name__.removesuffix("Error").removeprefix("Kafka")
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    return f"{name}: {error.args[0]}" if error.args else name
