"""A cluster without sockets, for tests of handlers: its clock stands still, its disk is a temporary directory.

Requests go through the dispatcher as real frames and their answers come back decoded, so that every version's bytes are
covered on the way. What an API must answer is each test's business.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.assembly import Broker
from minibroker.broker.configs.settings import Settings
from minibroker.broker.delayed_operations import DelayedOperation, Slicer
from minibroker.broker.fetch_sessions import FetchSessions
from minibroker.broker.metadata.nodes import Endpoint, Node
from minibroker.broker.metadata.partitions import Partition
from minibroker.broker.network.connection import Connection
from minibroker.broker.network.framing import PREFIX, FrameBudget
from minibroker.broker.network.output_items import CLOSE, AnswerEndMark
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.dispatch import Dispatcher
from minibroker.broker.requests.routes import DueResponse, Route, UnanswerableRequest
from minibroker.broker.requests.served import SERVED, ServedApi
from minibroker.broker.security.acls import PatternType, Permission
from minibroker.broker.security.operations import Right
from minibroker.broker.security.principals import Principal
from minibroker.protocol.apis import get_response_class
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    get_request_header_version,
    get_response_header_version,
)
from minibroker.protocol.messages.groups import FindCoordinatorRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.security import CreateAclsRequest
from minibroker.protocol.messages.topics import CreateTopicsRequest
from minibroker.protocol.primitives import Output, format_uuid, make_uuid
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from minibroker.storage.directories.log_dirs import LogDirectories
from minibroker.storage.files import Disk
from minibroker.storage.log import Environment
from tests.broker.manual_clock import ManualClock
from tests.storage.support import FailingDisk

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
LISTENERS = {"PLAINTEXT": 9000, "INTERNAL": 19000}  # by name, the port of node 0
LIMIT_BYTES = 1 << 20
# Of 50 partitions, as by default, each would cost a test half a millisecond, when the topic is made and at each start.
STATE_TOPICS = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "5",
}

TopicData = ProduceRequest.TopicProduceData
CreatableTopic = CreateTopicsRequest.CreatableTopic


def served_versions(request: type[Message]) -> range:
    """The versions of a request that are served: what to parametrize tests over."""
    return SERVED[request.api_key].versions


def frame_of(request: Message, version: int, correlation_id: int = 7, client_id: str | None = "test") -> bytes:
    """A request as a client sends it, its size first."""
    out = Output()
    header = RequestHeader(
        request_api_key=request.api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    header.encode_into(out, get_request_header_version(request.api_key, version))
    request.encode_into(out, version)
    return PREFIX.pack(len(out)) + out


def answer_in(frame: bytes, api_key: int, version: int) -> tuple[int, Any]:
    """The correlation id and the response in a frame that a client receives; it must be whole, and nothing more."""
    assert PREFIX.unpack_from(frame)[0] == len(frame) - PREFIX.size
    header_version = get_response_header_version(api_key, version)
    header, position = ResponseHeader.decode_from(frame, header_version, PREFIX.size)
    return header.correlation_id, get_response_class(api_key).decode(frame, version, position)


def joined(items: Sequence[Any]) -> bytes:
    """Return the bytes on the wire for some items, with the regions' bytes between them. Marks are reached."""
    return b"".join(_wire_bytes(item) for item in items)


def _wire_bytes(item: Any) -> bytes:
    if isinstance(item, AnswerEndMark):
        item.report_answer_sent()
        return b""
    return bytes(item) if isinstance(item, bytes | bytearray) else item.read()


def batch(*values: bytes | str | None, timestamp: int = 1_700_000_000_000, step_ms: int = 0, **more: Any) -> bytes:
    """A batch with a record a value, `step_ms` apart; `more` are arguments of `build_batch`."""
    records = [
        Record(0, timestamp + index * step_ms, None, value.encode() if isinstance(value, str) else value, ())
        for index, value in enumerate(values)
    ]
    return bytes(build_batch(records, **more))


def count_handled(dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The APIs of the requests that reach their handlers from now on: those that a cache answers do not."""
    handled: list[int] = []

    def watch(served: ServedApi) -> None:
        handler = served.handler

        def handle(context: RequestContext, request: Any) -> Any:
            handled.append(served.key)
            return handler(context, request)

        monkeypatch.setattr(served, "handler", handle)

    for served in SERVED.values():
        watch(served)
    dispatcher._routes.clear()  # they have the handlers as they were
    return handled


class Verdicts:
    """An authorizer that allows what `allows(right, name)` says."""

    def __init__(self, allows: Callable[[Right, str], bool]) -> None:
        self._allows = allows

    def allows_operation(self, principal: Principal, host: str, right: Right, name: str) -> bool:
        return self._allows(right, name)


class KeptOutlet:
    """A socket's side of a connection that keeps what it is given."""

    def __init__(self) -> None:
        self.is_congested = False
        self.progress_ms = 0.0
        self.closed = False
        self.reading = True
        self.items: list[Any] = []
        self.soon: list[Callable[[], None]] = []

    def send(self, items: list[Any]) -> None:
        left = items[: items.index(CLOSE)] if CLOSE in items else items
        self.items += left
        self.closed = self.closed or len(left) < len(items)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def run_soon(self) -> None:
        """The loop's next turns, until nothing is left to do."""
        while self.soon:
            self.soon.pop(0)()


class Waiting:
    """A delayed request: `done` once it has its answer, which `response()` gives."""

    def __init__(self, outlet: KeptOutlet, api_key: int, version: int, delayed: DelayedOperation[Any]) -> None:
        self._outlet = outlet
        self._key = api_key
        self._version = version
        self._delayed = delayed

    @property
    def done(self) -> bool:
        return bool(self._outlet.items)

    def response(self) -> Any:
        assert self.done, "the request is still delayed"
        self._outlet.run_soon()
        return answer_in(joined(self._outlet.items), self._key, self._version)[1]

    def go_away(self) -> None:
        """The client closes its connection while it waits."""
        self._delayed.drop_for_lost_client()


class Ending:
    """The answer of a request that waits for the end of the turn: its `items` from then on."""

    def __init__(self, due: DueResponse) -> None:
        self.items: list[Any] = []
        self._due = due

    def on_turn_ended(self) -> None:
        self.items = self._due.list_answer_parts()


class Client:
    """A client's connection: bytes in as they come from a socket, decoded answers out.

    `failure` says why the broker closed it, if a request was unanswerable.
    """

    def __init__(self, harness: Harness, node: Node, listener: str, budget: FrameBudget, limit_bytes: int) -> None:
        self.outlet = KeptOutlet()
        self.failure: str | None = None
        self._harness = harness
        self._asked: list[tuple[int, int]] = []
        self._read = 0
        self.connection = Connection(
            node, listener, self.outlet, self._execute, harness.cluster.turn.add_listener, budget, limit_bytes, "test:1"
        )

    def send(self, request: Message, version: int | None = None, *, correlation_id: int = 7) -> None:
        """Send one request, whole, and let everything run that can."""
        version = served_versions(type(request))[-1] if version is None else version
        self._asked.append((request.api_key, version))
        self.send_bytes(frame_of(request, version, correlation_id))

    def send_bytes(self, data: bytes) -> None:
        """Let the socket read `data`, in as many pieces as the connection makes room for."""
        scratch = memoryview(bytearray(1 << 16))
        while data:
            room = self.connection.get_receive_buffer(scratch)
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self.connection.process_received_data(scratch, count)
        self._harness.end_turn()
        self.outlet.run_soon()

    def sent_bytes(self) -> bytes:
        """All that the broker has sent."""
        return joined(self.outlet.items)

    def responses(self) -> Iterator[tuple[int, Any]]:
        """(correlation id, response) of each answer to `send` that was not read yet."""
        data = self.sent_bytes()
        while len(data) > self._read:
            size = PREFIX.unpack_from(data, self._read)[0] + PREFIX.size
            frame = data[self._read : self._read + size]
            self._read += size
            yield answer_in(frame, *self._asked.pop(0))

    @property
    def closed(self) -> bool:
        return self.outlet.closed

    def _execute(self, connection: Connection, frame: memoryview) -> Any:
        try:
            return self._harness.dispatcher.execute(connection, frame)
        except UnanswerableRequest as error:
            self.failure = str(error)
            connection.close_after_answers()
            return None


class Harness:
    """A cluster of `nodes` nodes with the ids 1, 2, ..., on the data in `directory`; ids and placement are seeded.

    `settings` are texts by Kafka's names; the topics of coordinators have 5 partitions unless these say more.
    `advance` of the `clock` runs what is due. The `disk` syncs nothing unless it is another one, as no test cuts the
    power.
    """

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 1,
        settings: Mapping[str, str] | None = None,
        seed: int = 1,
        disk: Disk | None = None,
    ) -> None:
        self.disk = disk or FailingDisk()
        self.directory = directory
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self._texts = STATE_TOPICS | dict(settings or {})
        self._open(range(1, nodes + 1))

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *_: object) -> None:
        self.logs.close_without_checkpoints()

    def _open(self, node_ids: Sequence[int]) -> None:
        self._node_ids = node_ids
        settings = Settings({"log.dirs": str(self.directory / "data"), "node.id": "1", **self._texts})
        environment = Environment(
            self.disk, self.clock.wall_ms, self.clock.call_later, self.clock.run_in_thread, self.random
        )
        self.logs = LogDirectories(
            environment,
            settings.log_directories,
            node_id=1,
            cluster_id=None,
            new_id=lambda: format_uuid(make_uuid(self.random)),
        )
        try:
            self._load(settings)
        except BaseException:
            self.logs.close()
            raise

    def _load(self, settings: Settings) -> None:
        self.cluster = cluster = Broker(settings, self.clock, self.logs, self.random)
        for node_id in self._node_ids:
            slots = cluster.settings["max.incremental.fetch.session.cache.slots"]
            node = cluster.nodes[node_id] = Node(node_id, FetchSessions(slots, self.random))
            node.endpoints = {name: Endpoint(f"node{node_id}.test", port + node_id) for name, port in LISTENERS.items()}
        cluster.turn.bind_to_loop(lambda end: self.clock.call_later(0, end))
        cluster.load_cluster()
        self.dispatcher = Dispatcher(cluster)

    def restart(
        self, *, nodes: Sequence[int] | None = None, crash: bool = False, settings: Mapping[str, str] | None = None
    ) -> None:
        """Stop, and start again on the same data, with the nodes of these ids and with some other settings."""
        self.stop(crash=crash)
        self.start(nodes=nodes, settings=settings)

    def stop(self, *, crash: bool = False) -> None:
        """Stop as a signal or, with `crash`, as SIGKILL does."""
        self.end_turn()
        if crash:
            self.logs.close_without_checkpoints()
        else:
            self.cluster.fence_nodes_at_shutdown()
            self.logs.close()

    def start(self, *, nodes: Sequence[int] | None = None, settings: Mapping[str, str] | None = None) -> None:
        """Start after `stop`. Raises what the cluster raises if the directory is no use, and lets go of it then."""
        self.clock = ManualClock(self.clock.wall_ms())
        self._texts.update(settings or {})
        self._open(self._node_ids if nodes is None else nodes)

    def end_turn(self) -> None:
        """Do what happens when a turn of the loop ends: write, answer, and let those look whom appends have woken."""
        self.cluster.turn.end()

    # --- asking ---------------------------------------------------------------------------------

    def make_context(
        self, key: int, version: int, connection: Connection | None = None, slicer: Slicer | None = None
    ) -> RequestContext:
        """The context of a request that no connection has sent."""
        connection = connection or self.client().connection
        return RequestContext(self.cluster, connection, Route(SERVED[key], version), 0, "test", slicer or Slicer())

    def client(
        self,
        *,
        node: int = 1,
        listener: str = "PLAINTEXT",
        limit_bytes: int = LIMIT_BYTES,
        budget: FrameBudget | None = None,
    ) -> Client:
        """A connection of its own to a node, for what concerns connections, which may share a budget."""
        return Client(self, self.cluster.nodes[node], listener, budget or FrameBudget(), limit_bytes)

    def request(
        self,
        request: Message,
        version: int | None = None,
        *,
        node: int = 1,
        client_id: str | None = "test",
        listener: str = "PLAINTEXT",
        user: str = "ANONYMOUS",
        host: str = "127.0.0.1",
    ) -> Any:
        """The decoded answer to a request, in its newest served version unless told; a `Waiting` if it is delayed.

        None if it has no answer. Raises UnanswerableRequest where the broker closes the connection.
        """
        version = served_versions(type(request))[-1] if version is None else version
        outlet = KeptOutlet()
        connection = Connection(
            self.cluster.nodes[node],
            listener,
            outlet,
            self.dispatcher.execute,
            self.cluster.turn.add_listener,
            FrameBudget(),
            LIMIT_BYTES,
            host=host,
        )
        connection.principal = Principal("User", user)
        frame = memoryview(bytearray(frame_of(request, version, client_id=client_id)))
        outcome = self.dispatcher.execute(connection, frame[PREFIX.size :])
        due = Ending(outcome) if isinstance(outcome, DueResponse) else None
        if due is not None:
            self.cluster.turn.add_listener(due)
        self.end_turn()
        if outcome is None:
            return None
        if isinstance(outcome, DelayedOperation):
            waiting = Waiting(outlet, request.api_key, version, outcome)
            return waiting.response() if waiting.done else waiting
        items = outcome if due is None else due.items
        correlation_id, response = answer_in(joined(items), request.api_key, version)
        assert correlation_id == 7
        return response

    # --- what most tests need -------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 1, *, user: str = "ANONYMOUS", **configs: str
    ) -> None:
        """Make a topic; `configs` have underscores for dots."""
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
        topic.configs = [
            CreatableTopic.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ]
        (result,) = self.request(CreateTopicsRequest(topics=[topic]), user=user).topics
        assert result.error_code == ErrorCode.NONE, result

    def add_acl(
        self,
        right: Right,
        name: str,
        *,
        user: str = "alice",
        host: str = "*",
        permission: Permission = Permission.ALLOW,
        pattern: PatternType = PatternType.LITERAL,
    ) -> None:
        """Add an ACL as an administrator does; the authorizer must be on, and User:admin a super user."""
        creation = CreateAclsRequest.AclCreation(
            resource_type=right.resource_type,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=f"User:{user}",
            host=host,
            operation=right.operation,
            permission_type=permission,
        )
        (result,) = self.request(CreateAclsRequest(creations=[creation]), user="admin").results
        assert result.error_code == ErrorCode.NONE, result

    def coordinator(self, group: str) -> int:
        """The node that looks after a group. Asking for it has the topic of the groups created, as in Kafka."""
        (found,) = self.request(FindCoordinatorRequest(coordinator_keys=[group])).coordinators
        assert found.error_code == ErrorCode.NONE, found
        node_id: int = found.node_id
        return node_id

    def partition(self, topic: str, index: int = 0) -> Partition:
        """The partition itself, for a look inside."""
        return self.cluster.image.topics[topic].partitions[index]

    def produce(self, topic: str, *values: bytes | str | None, partition: int = 0, **more: Any) -> int:
        """Append a record a value in one batch, at the leader; its first offset. `more` as for `batch`."""
        answer = self.produce_batch(topic, batch(*values, **more), partition=partition)
        assert answer.error_code == ErrorCode.NONE, answer
        offset: int = answer.base_offset
        return offset

    def produce_batch(
        self,
        topic: str,
        records: bytes,
        *,
        partition: int = 0,
        version: int = 9,
        acks: int = -1,
        user: str = "ANONYMOUS",
    ) -> Any:
        """The answer of the leader to a Produce of these bytes, for their partition."""
        data = TopicData(
            name=topic, partition_data=[TopicData.PartitionProduceData(index=partition, records=memoryview(records))]
        )
        request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])
        response = self.request(request, version, node=self.partition(topic, partition).leader_id, user=user)
        return response.responses[0].partition_responses[0]
