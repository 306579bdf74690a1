"""The coordinator runtime: what groups, transactions and every other kind of coordinator have in common.

A coordinator's state is a fold over its topic. Each partition of it is a shard: loaded from its log, changed by records
that are appended in the turn and then folded in, and unloaded when the log does not hold what memory does.

    not yet read --> loads --> loaded --- a write failed when the turn ended --> loads (again)
                       |  ^
                       v  |  after a while
                    cannot be read

What the records say, and who may change what, is the business of each kind: a package with a `CoordinatorRuntime` of
its own, its `Shard`s, and a row in `coordinators`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

from minibroker.broker.coordination.coordinator_logs import (
    COORDINATOR_CODES,
    CoordinatorLog,
    CoordinatorLogSettings,
    Entry,
    Shard,
)
from minibroker.broker.requests.slices import in_slices
from minibroker.broker.requests.turn import Wait, failure_of_pending, wait_for
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.steps import Steps, at_once

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster, Node
    from minibroker.broker.control.controller import Controller
    from minibroker.broker.metadata.partitions import Partition, Topic
    from minibroker.storage.pending import Pending

log = logging.getLogger("minibroker.coordinators")

AnyShard = TypeVar("AnyShard", bound=Shard)
Value = TypeVar("Value")

RELOAD_MS = 100  # after a write that failed: a loaded shard may write at once, and the disk be as full as before
FIRST_RETRY_MS = 10_000
LAST_RETRY_MS = 600_000


class CoordinatorRuntime(ABC, Generic[AnyShard]):
    """One kind of coordinator. What a key names is looked after by the node that leads the key's partition."""

    def __init__(self, cluster: Cluster, controller: Controller, topic: str, settings: CoordinatorLogSettings) -> None:
        self.cluster = cluster
        self.controller = controller
        self.log = CoordinatorLog(cluster, controller, topic, settings)
        self._shards: dict[int, AnyShard] = {}  # those that are loaded, by partition
        self._loading: dict[int, AnyShard] = {}
        self._retries_ms: dict[int, int] = {}  # of partitions that cannot be read: when it is tried again
        self._appended: dict[int, Pending] = {}  # in this turn, what was appended last

    @abstractmethod
    def new_shard(self, index: int) -> AnyShard:
        """Return the empty shard of a partition."""

    # --- loading --------------------------------------------------------------------------------

    def load(self) -> None:
        """Load all shards whose logs are here."""
        for partition in self.log.partitions_here():
            at_once(self._load(partition))

    def leader_changed(self, partition: Partition) -> None:
        """Load the shard of a partition that could not be served before. All nodes here share those that are loaded."""
        if partition.index not in self._shards and partition.index not in self._loading:
            self._load_soon(partition.index)

    def _load_soon(self, index: int, delay_ms: int = 0) -> None:
        """Load a shard in slices, if its log is of use then."""
        topic_id = None if self.log.topic is None else self.log.topic.topic_id

        def load() -> None:
            topic = self.log.topic
            partition = topic.partition(index) if topic is not None and topic.topic_id == topic_id else None
            if partition is not None and index not in self._shards and partition.is_here and partition.log.in_use:
                in_slices(self.cluster, lambda _: None, self._load(partition), lambda: None)

        self.cluster.clock.call_later(delay_ms, load)

    def _load(self, partition: Partition) -> Steps[None]:
        """Load a shard; stop if somebody else does that, or the topic is deleted."""
        index = partition.index
        shard = self._loading[index] = self.new_shard(index)
        try:
            for _ in self.log.replay(partition, shard):
                yield
                if self._loading.get(index) is not shard:
                    return
        except KafkaError as error:
            self._cannot_load(partition, error)
            return
        del self._loading[index]
        self._retries_ms.pop(index, None)
        self._shards[index] = shard
        shard.loaded()

    def _cannot_load(self, partition: Partition, error: KafkaError) -> None:
        """Forget what was read: half of the records may say what was not so in the end."""
        self._loading.pop(partition.index).unload()
        delay_ms = self._retries_ms.get(partition.index, FIRST_RETRY_MS)
        self._retries_ms[partition.index] = min(2 * delay_ms, LAST_RETRY_MS)
        log.critical("%s cannot be read, and is not served; it is tried again in %d ms: %s", partition, delay_ms, error)
        self._load_soon(partition.index, delay_ms)

    def turn_ended(self) -> None:
        """Load the shards anew whose memory ran ahead of their logs, as what was appended could not be written."""
        appended, self._appended = self._appended, {}
        for index, pending in appended.items():
            failure = failure_of_pending(pending)
            if failure is not None and index in self._shards:
                log.error("%s-%d is loaded again: %s", self.log.name, index, failure)
                shard = self._loading[index] = self._shards.pop(index)
                shard.unload()
                self._load_soon(index, RELOAD_MS)

    def topic_deleted(self, topic: Topic) -> Steps[None]:
        """Forget all, if it is the topic of these coordinators that somebody has deleted."""
        if topic.name == self.log.name:
            shards = [*self._shards.values(), *self._loading.values()]
            self._shards, self._loading = {}, {}
            self._retries_ms.clear()
            for shard in shards:
                shard.unload()
                yield

    # --- who coordinates what ---------------------------------------------------------------------

    def node_of(self, key: str) -> Node | None:
        """Return the node that coordinates what `key` names, as it leads its partition; None while nobody does."""
        try:
            return self.cluster.nodes.get(self.log.partition_for(key).leader_id)
        except KafkaError:
            return None

    def check(self, node: Node, key: str) -> None:
        """Raises KafkaError unless `node` coordinates `key` now: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        partition = self.log.partition_for(key)
        if self.cluster.nodes.get(partition.leader_id) is not node:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"Node {node.node_id} does not coordinate {key}.")
        if partition.index not in self._shards:
            self.shard(partition.index)

    def shard(self, index: int) -> AnyShard:
        """Return the shard of a partition. Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        if index not in self._shards:
            if index in self._loading:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.log.name}-{index} is being loaded.")
            if index in self._retries_ms:
                raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{self.log.name}-{index} cannot be read.")
            at_once(self._load(self.log.partition(index)))  # it is new, and nothing is in it yet
        return self._shards[index]

    def shard_of(self, key: str) -> AnyShard:
        """Return the shard that has what `key` names. Raises KafkaError as `shard`."""
        return self.shard(self.log.partition_of(key))

    # --- changes --------------------------------------------------------------------------------

    def append(self, key: str, entries: Iterable[Entry]) -> None:
        """Record a decision on what `key` names, all of it or nothing; whoever decided applies it then.

        Raises KafkaError with the code for the client.
        """
        kept = list(entries)
        if kept:
            self.append_batch(key, self.log.batch(kept))

    def append_batch(self, key: str, batch: memoryview, producer: tuple[int, int] | None = None) -> None:
        """Append a batch of `CoordinatorLog.batch`, made with the same producer. Raises as `append` does."""
        partition = self.log.partition_for(key)
        index = partition.index
        if index not in self._shards:
            self.shard(index)
        before = self._appended.get(index)
        if before is not None and before.failure is not None:  # what is decided now may build on what was lost
            raise KafkaError(ErrorCode.NOT_COORDINATOR, before.failure.message)
        self.log.append_batch(partition, batch, producer)
        pending = partition.log.unwritten
        if pending is not None and pending is not before:
            self._appended[index] = pending
            self.cluster.turn.tell(self)

    def transaction_ended(self, index: int, producer_id: int, *, committed: bool) -> None:
        """Tell a shard of a marker that was appended to its partition; one that loads will read it."""
        if index in self._shards:
            self._shards[index].transaction_ended(producer_id, committed=committed)

    def wait(self, key: str) -> Wait:
        """Return the promise to keep before a client is told that its change of `key` is made. Raises KafkaError."""
        return wait_for(self.log.partition_for(key).log, COORDINATOR_CODES)

    def wait_written(self, key: str) -> Wait:
        """Return the promise to keep before a client is told what is known of `key`. Raises KafkaError."""
        appended_to = self.log.partition_for(key).log
        return Wait(appended_to, appended_to.unwritten, codes=COORDINATOR_CODES)

    def when_durable(self, key: str, then: Callable[[KafkaError | None], None]) -> None:
        """Call `then` once that promise is kept, or with what broke it. Raises KafkaError."""
        self.cluster.turn.when(self.wait(key), then)


class ByPartition(dict[str, Value]):
    """What a coordinator knows, by key, and what of it lies in which partition. Only `take` pops."""

    def __init__(self, coordinator_log: CoordinatorLog) -> None:
        super().__init__()
        self._log = coordinator_log
        self._keys: defaultdict[int, set[str]] = defaultdict(set)

    def __setitem__(self, key: str, value: Value) -> None:
        if key not in self:
            self._keys[self._log.partition_of(key)].add(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self._keys[self._log.partition_of(key)].discard(key)

    def of(self, index: int) -> list[Value]:
        """Return what lies in a partition."""
        return [self[key] for key in self._keys.get(index, ()) if key in self]

    def take(self, index: int) -> list[Value]:
        """Forget what lies in a partition, and return it."""
        return [self.pop(key) for key in self._keys.pop(index, ()) if key in self]
