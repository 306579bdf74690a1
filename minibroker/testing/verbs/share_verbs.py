"""The methods for a share group (KIP-932): what was delivered, locks that end, and waits.

`Broker.share_group` returns them for a group. Evictions and rebalances are those of all groups, in `group_verbs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from minibroker.broker.configs.group_settings import DEAD_LETTER_TOPIC
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.metadata_records import GROUP_RESOURCE
from minibroker.quantities import Duration
from minibroker.testing.completion import hide_names
from minibroker.testing.embedded.given_settings import format_setting
from minibroker.testing.loops import BrokerLoop, blocking, immediate, make_coroutine_of_blocking_verb
from minibroker.testing.seen.log_reading import Record, describe_records, iterate_records, list_local_partitions
from minibroker.testing.seen.waiting import DEFAULT_TIMEOUT, format_count_with_were, format_there_are
from minibroker.testing.verbs.dead_letter_records import DeadLetter, enable_dead_letters, list_dead_letters
from minibroker.testing.verbs.own_requests import execute_request, get_any_node, raise_if_error
from minibroker.testing.verbs.share_deliveries import (
    Delivery,
    DeliveryHistory,
    find_share_group,
    find_start_offset,
    iterate_share_keys,
)

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker as Cluster
    from minibroker.testing.verbs.wait_verbs import WaitVerbs

SET: Final = 0  # the operation of IncrementalAlterConfigs
LATER: Final = 2  # the number of the first delivery that is not the first


@dataclass(frozen=True, repr=False)
class DeliveredRecord(Record):
    """A record, how often it was delivered to the group, and its state and member as in `Delivery`."""

    deliveries: int
    state: str
    member: str | None

    def __str__(self) -> str:
        """Describe the record in a line."""
        by = "" if self.member is None else f" by {self.member}"
        return f"{super().__str__()}, delivered {self.deliveries} times, {self.state}{by}"


@hide_names("loop")
class ShareGroupVerbs:
    """A share group, which need not exist yet. Each method raises KafkaError for a group of another type."""

    def __init__(self, broker: WaitVerbs, group: str) -> None:
        self.group = group
        self._broker = broker

    def __repr__(self) -> str:
        return f"<share group {self.group}>"

    @property
    def loop(self) -> BrokerLoop:
        """Return the broker's loop. Raises NotRunning."""
        return self._broker.loop

    @property
    def _cluster(self) -> Cluster:
        return self._broker.running.cluster

    @property
    def _history(self) -> DeliveryHistory:
        return self._broker.share_history

    # --- what there is ----------------------------------------------------------------------------

    @immediate
    def deliveries(self, topic: str | None = None) -> list[Delivery]:
        """Return what was delivered to the group, of one topic or all, in ranges of offsets, in order.

        Of records that are settled, it is what `__share_group_state` still has. Without the group there is nothing.
        """
        self._cluster.turn.end()  # the coordinator's log then has what the share partitions have passed over
        return self._history.list_deliveries(self.group, topic)

    @immediate
    def dead_letters(self) -> list[DeadLetter]:
        """Return the group's dead letters (KIP-1191) in its topic, one partition after the other."""
        return list_dead_letters(self._cluster, self.group)

    # --- what it does -----------------------------------------------------------------------------

    @blocking
    async def configure(self, /, **configs: object) -> None:
        """Set configs of the group, as keyword arguments with underscores for dots.

        `configure(share_auto_offset_reset="earliest")`. Raises KafkaError as a client would get it.
        """
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        changes = [
            resource.AlterableConfig(name=name.replace("_", "."), config_operation=SET, value=format_setting(value))
            for name, value in configs.items()
        ]
        changed = resource(resource_type=GROUP_RESOURCE, resource_name=self.group, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[changed])
        (answer,) = (await execute_request(self._cluster, get_any_node(self._cluster), request)).responses
        raise_if_error(answer.error_code, answer.error_message or self.group)

    aconfigure = make_coroutine_of_blocking_verb(configure)

    @blocking
    async def collect_dead_letters(self, topic: str | None = None, *, copies: bool = True) -> str:
        """Write a dead letter for each record that is rejected or delivered too often (KIP-1191); return their topic.

        By default it is "dlq." and the group's id; it is created if it does not exist. `copies` says whether dead
        letters have keys and values. The cluster's share.version becomes 2. Raises KafkaError.
        """
        configs = await enable_dead_letters(self._cluster, topic, self.group, copies=copies)
        await self.aconfigure(**configs)
        return configs[DEAD_LETTER_TOPIC]

    acollect_dead_letters = make_coroutine_of_blocking_verb(collect_dead_letters)

    @immediate
    def expire_locks(self) -> int:
        """End the acquisition locks of the group, as if their time were over; return how many records they held.

        The records are delivered again, unless they were delivered as often as the group allows. Raises KafkaError.
        """
        from minibroker.broker.share.runs import DeliveryState

        cluster = self._cluster
        group = find_share_group(cluster, self.group)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {self.group!r}")
        locked = 0
        for key, _ in iterate_share_keys(group):
            share = cluster.shares.find_share_partition(key)
            if share is not None:
                locked += sum(
                    run.record_count for run in share.deliveries.list_runs() if run.state == DeliveryState.ACQUIRED
                )
                share.release_expired_locks(release_all=True)
        cluster.turn.end()  # fetches that wait for records get them at once
        self._broker.watch.check_conditions_soon()
        return locked

    # --- waits --------------------------------------------------------------------------------------

    @blocking
    async def wait_until_assigned(
        self, topic: str, members: int | None = None, timeout: Duration = DEFAULT_TIMEOUT
    ) -> dict[str, list[int]]:
        """Wait until all partitions of the topic are assigned, to this many members, by default any number.

        Return the partitions by member. Several members may have the same partition. Raises Expired.
        """

        def get_assignment() -> dict[str, list[int]]:
            group, known = find_share_group(self._cluster, self.group), self._cluster.image.topics.get(topic)
            if group is None or known is None:
                return {}
            assigned = {each.member_id: each.assigned.get(known.topic_id) for each in group.members.values()}
            return {member: sorted(partitions) for member, partitions in assigned.items() if partitions}

        def find_assignment() -> dict[str, list[int]] | None:
            assigned, known = get_assignment(), self._cluster.image.topics.get(topic)
            whole = known is not None and {*range(len(known.partitions))} == {*sum(assigned.values(), [])}
            return assigned if whole and members in (None, len(assigned)) else None

        def describe_timeout() -> str:
            expected = "members" if members is None else f"{members} members"
            is_so = f"is assigned so: {get_assignment()}"
            return f"{topic} was expected to be assigned to {expected} of group {self.group!r}, and {is_so}"

        return await self._broker.watch.wait_until(find_assignment, timeout, describe_timeout)

    await_until_assigned = make_coroutine_of_blocking_verb(wait_until_assigned)

    @blocking
    async def wait_until_settled(
        self, topic: str, offset: int, partition: int = 0, timeout: Duration = DEFAULT_TIMEOUT
    ) -> int:
        """Wait until all records below `offset` are acknowledged or archived; return the first offset that is not.

        Raises Expired.
        """

        from minibroker.broker.share.states import ShareKey

        def get_offset() -> int:
            known = self._cluster.image.topics.get(topic)
            if find_share_group(self._cluster, self.group) is None or known is None:
                return 0
            return find_start_offset(self._cluster, ShareKey(self.group, known.topic_id, partition)) or 0

        def describe_timeout() -> str:
            where = f"{topic}-{partition}"
            return (
                f"group {self.group!r} was expected to settle {where} up to offset {offset}, and is at {get_offset()}"
            )

        return (
            await self._broker.watch.wait_until(
                lambda: (get_offset(),) if get_offset() >= offset else None, timeout, describe_timeout
            )
        )[0]

    await_until_settled = make_coroutine_of_blocking_verb(wait_until_settled)

    @blocking
    async def expect_redelivered(
        self, topic: str, count: int = 1, deliveries: int = LATER, timeout: Duration = DEFAULT_TIMEOUT
    ) -> list[DeliveredRecord]:
        """Wait until `count` records of the topic were delivered at least this often; return all such records.

        `deliveries` is from 1. Raises Expired, ValueError.
        """
        if deliveries < 1:
            raise ValueError(f"deliveries is at least 1, and cannot be {deliveries}")

        def find_redelivered() -> list[DeliveredRecord] | None:
            often = [each for each in self._history.list_deliveries(self.group, topic) if each.deliveries >= deliveries]
            if sum(each.last - each.first + 1 for each in often) < count:
                return None
            records = list(self._iterate_records(often))
            return records if len(records) >= count else None

        def describe_timeout() -> str:
            records = list(self._iterate_records(self._history.list_deliveries(self.group, topic)))
            often = sum(each.deliveries >= deliveries for each in records)
            expected = f"{format_count_with_were(count, 'record')} expected to be delivered {deliveries} times"
            seen = f"{format_there_are(often)}{describe_records(records)}"
            return f"{expected} from {topic} to group {self.group!r}, and {seen}"

        return await self._broker.watch.wait_until(find_redelivered, timeout, describe_timeout) if count else []

    aexpect_redelivered = make_coroutine_of_blocking_verb(expect_redelivered)

    @blocking
    async def expect_dead_letters(self, count: int = 1, timeout: Duration = DEFAULT_TIMEOUT) -> list[DeadLetter]:
        """Wait until the group has this many dead letters; return all. Raises Expired."""

        def find_dead_letters() -> list[DeadLetter] | None:
            letters = self.dead_letters()
            return letters if len(letters) >= count else None

        def describe_timeout() -> str:
            letters = self.dead_letters()
            expected = f"{format_count_with_were(count, 'dead letter')} expected of group {self.group!r}"
            return f"{expected}, and {format_there_are(len(letters))}{describe_records(letters)}"

        return (
            await self._broker.watch.wait_until(find_dead_letters, timeout, describe_timeout)
            if count
            else self.dead_letters()
        )

    aexpect_dead_letters = make_coroutine_of_blocking_verb(expect_dead_letters)

    def _iterate_records(self, deliveries: list[Delivery]) -> Iterator[DeliveredRecord]:
        """Yield the records of deliveries, as far as the log has them."""
        for topic, index, first, last, state, count, member in deliveries:
            for partition in list_local_partitions(self._cluster, topic):
                if partition.index != index:
                    continue
                for record in iterate_records(partition, first):
                    if record.offset > last:
                        break
                    yield DeliveredRecord(**vars(record), deliveries=count, state=state, member=member)
