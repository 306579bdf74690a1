"""The coordinator runtime: the common part of groups, transactions and every other kind of coordinator.

A coordinator's state is a fold over its topic. The state of each partition is a shard: loaded from the log, changed by
records that are appended in the turn and then applied, and loaded again if the records could not be written.

    not loaded --> loading --> loaded --- a write failed at the end of the turn --> loading
                     |  ^
                     v  |  after a delay
                    unreadable

Each kind is a package with a subclass of `CoordinatorRuntime`, its `CoordinatorShard`s, a row in `coordinators`. It
defines its records and operations.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from itertools import chain
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from minibroker.broker.clock import run_steps_in_slices
from minibroker.broker.coordination.coordinator_logs import (
    COORDINATOR_CODES,
    CoordinatorLog,
    CoordinatorLogSettings,
    CoordinatorShard,
    Entry,
)
from minibroker.broker.turn import AppendWait, make_append_wait
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.steps import Steps, run_all_steps

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.control.controller import Controller
    from minibroker.broker.metadata.nodes import Node
    from minibroker.broker.metadata.partitions import Partition, Topic
    from minibroker.protocol.records.batch import BatchHeader
    from minibroker.storage.pending import PendingBatches

log = logging.getLogger("minibroker.coordinators")

AnyShard = TypeVar("AnyShard", bound=CoordinatorShard)
Value = TypeVar("Value")

RELOAD_MS: Final = 100  # after a failed write: a loaded shard may write at once, while the disk is still full
FIRST_RETRY_MS: Final = 10_000
LAST_RETRY_MS: Final = 600_000
PARTS: Final = 64  # of a mapping


class CoordinatorRuntime(ABC, Generic[AnyShard]):
    """A kind of coordinator. The node that leads a key's partition coordinates that key."""

    def __init__(self, cluster: Cluster, controller: Controller, topic: str, settings: CoordinatorLogSettings) -> None:
        self.cluster = cluster
        self.controller = controller
        self.log = CoordinatorLog(cluster, controller, topic, settings)
        self._shards: dict[int, AnyShard] = {}  # loaded shards by partition
        self._loading: dict[int, AnyShard] = {}
        self._retries_ms: dict[int, int] = {}  # of unreadable partitions: the delay before the next try
        self._appended: dict[int, PendingBatches] = {}  # the last append of this turn, by partition

    @abstractmethod
    def make_shard(self, index: int) -> AnyShard:
        """Return the empty shard of a partition."""

    # --- loading --------------------------------------------------------------------------------

    def load_all_shards(self) -> None:
        """Load all shards whose logs are here."""
        for partition in self.log.iterate_local_partitions():
            run_all_steps(self._load_shard(partition))

    def on_leader_changed(self, partition: Partition) -> None:
        """Load the partition's shard unless it is loaded, as the nodes of this process share their shards."""
        if partition.index not in self._shards and partition.index not in self._loading:
            self._load_shard_soon(partition.index)

    def _load_shard_soon(self, index: int, delay_ms: int = 0) -> None:
        """Load a shard in slices, if its log is online then."""
        topic_id = None if self.log.topic is None else self.log.topic.topic_id

        def load_shard_if_leader() -> None:
            topic = self.log.topic
            partition = topic.find_partition(index) if topic is not None and topic.topic_id == topic_id else None
            if (
                partition is not None
                and index not in self._shards
                and partition.has_local_log
                and partition.log.is_open_and_online
            ):
                run_steps_in_slices(self.cluster.clock, self._load_shard(partition))

        self.cluster.clock.call_later(delay_ms, load_shard_if_leader)

    def _load_shard(self, partition: Partition) -> Steps[None]:
        """Load a shard; stop if another load has replaced this one, or if the topic is deleted."""
        index = partition.index
        shard = self._loading[index] = self.make_shard(index)
        try:
            for _ in self.log.replay_partition(partition, shard):
                yield
                if self._loading.get(index) is not shard:
                    return
        except KafkaError as error:
            self._retry_loading_shard_later(partition, error)
            return
        del self._loading[index]
        self._retries_ms.pop(index, None)
        self._shards[index] = shard
        shard.start_timers_after_load()

    def _retry_loading_shard_later(self, partition: Partition, error: KafkaError) -> None:
        """Discard what was read, as later records may have superseded it, and try again later."""
        self._loading.pop(partition.index).discard_state()
        delay_ms = self._retries_ms.get(partition.index, FIRST_RETRY_MS)
        self._retries_ms[partition.index] = min(2 * delay_ms, LAST_RETRY_MS)
        log.critical("%s cannot be read, and is not served; the next try is in %d ms: %s", partition, delay_ms, error)
        self._load_shard_soon(partition.index, delay_ms)

    def on_turn_ended(self) -> None:
        """Reload the shards whose state is ahead of their log, because an append could not be written."""
        for index, pending in list(self._appended.items()):
            if pending.headers:
                continue  # a listener before this one has appended it, so the next turn's end writes it
            del self._appended[index]
            failure = pending.failure
            if failure is not None and index in self._shards:
                log.error("%s-%d is loaded again: %s", self.log.name, index, failure)
                shard = self._loading[index] = self._shards.pop(index)
                shard.discard_state()
                self._load_shard_soon(index, RELOAD_MS)

    def on_topic_deleted(self, topic: Topic) -> Steps[None]:
        """Unload all shards if the topic is that of these coordinators."""
        if topic.name == self.log.name:
            shards = [*self._shards.values(), *self._loading.values()]
            self._shards, self._loading = {}, {}
            self._retries_ms.clear()
            for shard in shards:
                shard.discard_state()
                yield

    # --- nodes and shards -------------------------------------------------------------------------

    def find_coordinator_node(self, coordinator_key: str) -> Node | None:
        """Return the node that coordinates a key, as it leads the key's partition, or None if there is no leader."""
        try:
            return self.cluster.nodes.get(self.log.get_writable_partition(coordinator_key).leader_id)
        except KafkaError:
            return None

    def check_is_coordinator(self, node: Node, coordinator_key: str) -> None:
        """Check that `node` coordinates `coordinator_key`.

        Raises KafkaError: NOT_COORDINATOR if another node does, COORDINATOR_LOAD_IN_PROGRESS.
        """
        partition = self.log.get_writable_partition(coordinator_key)
        if self.cluster.nodes.get(partition.leader_id) is not node:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if partition.index not in self._shards:
            self.get_shard(partition.index)

    def get_shard(self, index: int) -> AnyShard:
        """Return the shard of a partition. Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        if index not in self._shards:
            if index in self._loading:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            if index in self._retries_ms:
                raise KafkaError(ErrorCode.NOT_COORDINATOR)  # it cannot be read
            run_all_steps(self._load_shard(self.log.get_partition(index)))  # it is new and empty
        return self._shards[index]

    def get_shard_of_coordinator_key(self, coordinator_key: str) -> AnyShard:
        """Return the shard with the state of `coordinator_key`. Raises KafkaError as `get_shard`."""
        return self.get_shard(self.log.get_partition_index(coordinator_key))

    # --- changes --------------------------------------------------------------------------------

    def append_entries(self, coordinator_key: str, entries: Iterable[Entry]) -> int:
        """Append records about `coordinator_key`, all or none; return the first offset, -1 without records.

        The caller then applies them to its state. Raises KafkaError with the code for the client.
        """
        kept = list(entries)
        return self.append_batch(coordinator_key, self.log.build_batch(kept)) if kept else -1

    def append_batch(
        self,
        coordinator_key: str,
        batch: memoryview | bytearray,
        producer: tuple[int, int] | None = None,
        header: BatchHeader | None = None,
    ) -> int:
        """Append a batch of `CoordinatorLog.build_batch`, built with the same producer; return its first offset.

        `header` is the batch's, if it is known. Raises KafkaError as `append_entries`.
        """
        partition = self.log.get_writable_partition(coordinator_key)
        index = partition.index
        if index not in self._shards:
            self.get_shard(index)
        before = self._appended.get(index)
        if before is not None and before.failure is not None:  # the decision may be based on lost records
            raise KafkaError(ErrorCode.NOT_COORDINATOR, before.failure.message)
        offset = self.log.append_batch(partition, batch, producer, header)
        pending = partition.log.pending_batches
        if pending is not None and pending is not before:
            self._appended[index] = pending
            self.cluster.turn.add_listener(self)
        return offset

    def on_transaction_ended(self, index: int, producer_id: int, *, committed: bool) -> None:
        """Notify a shard of a marker that was appended to its partition; a loading shard reads it from the log."""
        if index in self._shards:
            self._shards[index].apply_transaction_end(producer_id, committed=committed)

    def make_durability_wait(self, coordinator_key: str) -> AppendWait:
        """Return the wait until all changes of the key's state are durable, so that they can be acknowledged."""
        return make_append_wait(self.log.get_writable_partition(coordinator_key).log, COORDINATOR_CODES)

    def make_wait_for_pending_write(self, coordinator_key: str) -> AppendWait:
        """Return the wait until all changes of the key's state are written. A client may see the state then."""
        appended_to = self.log.get_writable_partition(coordinator_key).log
        return AppendWait(appended_to, appended_to.pending_batches, translated_codes=COORDINATOR_CODES)

    def call_when_durable(self, coordinator_key: str, callback: Callable[[KafkaError | None], None]) -> None:
        """Call `callback` with None once changes of the key are durable, or with the failure. Raises KafkaError."""
        self.cluster.turn.call_when_wait_is_over(self.make_durability_wait(coordinator_key), callback)


class ValuesByPartition(MutableMapping[str, Value]):
    """Values by key, also indexed by the key's partition.

    They lie in several dictionaries: one that grows looks at each of its keys, which takes 31 ms at the 174,763rd.
    """

    def __init__(self, partition_of: Callable[[str], int]) -> None:
        self._partition_of = partition_of
        self._parts: list[dict[str, Value]] = [{} for _ in range(PARTS)]
        self._keys: defaultdict[int, dict[str, None]] = defaultdict(dict)

    def __getitem__(self, key: str) -> Value:
        return self._parts[hash(key) % PARTS][key]

    def get(self, key: str, default: Value | None = None) -> Value | None:  # type: ignore[override]
        return self._parts[hash(key) % PARTS].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._parts[hash(key) % PARTS]

    def __setitem__(self, key: str, value: Value) -> None:
        if key not in self:
            self._keys[self._partition_of(key)][key] = None
        self._parts[hash(key) % PARTS][key] = value

    def __delitem__(self, key: str) -> None:
        del self._parts[hash(key) % PARTS][key]
        self._keys[self._partition_of(key)].pop(key, None)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def iterate_present_values(self) -> Iterator[Value]:
        """Yield each value that is there when its turn comes; values may be added and removed meanwhile.

        Those of one partition are listed at a time: the collector of cycles takes 15 ms for a list of 200,000.
        """
        for index in list(self._keys):
            for key in list(self._keys.get(index, ())):
                value = self.get(key)
                if value is not None:
                    yield value

    def list_values_of_partition(self, index: int) -> list[Value]:
        """Return the values of a partition."""
        return [self[key] for key in self._keys.get(index, ()) if key in self]

    def remove_values_of_partition(self, index: int) -> list[Value]:
        """Remove and return the values of a partition."""
        return [self._parts[hash(key) % PARTS].pop(key) for key in self._keys.pop(index, ()) if key in self]
