"""The client that reads: a member of a classic consumer group, with heartbeats, commits and rebalances."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from minibroker.client.client_errors import check_error_code
from minibroker.client.cluster_client import Partition
from minibroker.client.membership import (
    ASSIGNOR,
    NAMED_TOPICS_COMMIT,
    NAMED_TOPICS_FETCH,
    NO_MEMBER,
    PROTOCOL_TYPE,
    STALE,
    assign_ranges,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_message_with_version,
)
from minibroker.client.record_fetching import NEWEST_WITH_NAMES, READ_COMMITTED, AbortedProducers
from minibroker.lab.clients import LabClient
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.groups import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from minibroker.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from minibroker.protocol.records.formats import (
    check_batch_or_message,
    iterate_batches_in_any_format,
    iterate_records_in_any_format,
)

SESSION_TIMEOUT_MS: Final = 10_000
REBALANCE_TIMEOUT_MS: Final = 20_000
WAIT_MS: Final = 500
MOST_BYTES: Final = 1 << 20
TOPIC: Final = FetchRequest.FetchTopic
OFFSETS_TOPIC: Final = OffsetFetchRequest.OffsetFetchRequestTopic
COMMITTED_TOPIC: Final = OffsetCommitRequest.OffsetCommitRequestTopic


class Consumer(LabClient):
    """Reads what is committed of the partitions that its group gives it, and commits how far it is."""

    kind = "consumer"

    async def set_up(self) -> None:
        """Create the topic if there is none, and join the group."""
        self._member, self._generation = NO_MEMBER, -1
        self._positions: dict[Partition, int] = {}
        await self.find_partitions()
        await self._join_group()

    async def run_one_round(self) -> None:
        """Send a heartbeat, fetch records and commit; or join the group again if it has rebalanced."""
        heartbeat = HeartbeatRequest(group_id=self.name, generation_id=self._generation, member_id=self._member)
        if await self._rejoin_if_left_behind(await self.send_request_to_coordinator("group", heartbeat)):
            return
        before = dict(self._positions)
        await self.retry_until_done(self._fetch_from_leaders)
        if self._positions != before and await self._commit_or_rejoin():
            return
        places = ", ".join(f"{index} at {offset}" for (_, index), offset in sorted(self._positions.items()))
        self.said = f"generation {self._generation}: {places or 'no partition'}"
        await self.wait_for_next_round()

    async def tear_down(self) -> None:
        """Leave the group."""
        leaving = LeaveGroupRequest.MemberIdentity(member_id=self._member)
        await self.send_request_to_coordinator(
            "group", LeaveGroupRequest(group_id=self.name, member_id=self._member, members=[leaving])
        )

    # --- membership

    async def _rejoin_if_left_behind(self, answer: Any) -> bool:
        """Join again if the answer says that the group goes on without this member; return whether it did."""
        if not self._has_to_rejoin(answer):
            return False
        await self._join_group()
        return True

    def _has_to_rejoin(self, answer: Any) -> bool:
        """Return whether the group goes on without this member, until it joins again. Raises ClientError."""
        if answer.error_code not in STALE:
            check_error_code(answer.error_code, f"group {self.name}")
            return False
        if answer.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            self._member = NO_MEMBER
        return True

    async def _join_group(self) -> None:
        """Ask to join until the member has an assignment, or is to stop."""
        self.said = "joins the group"
        while not self._stopping.is_set() and not await self._try_to_join():
            pass

    async def _try_to_join(self) -> bool:
        """Send JoinGroup and SyncGroup once; return whether the member has an assignment now."""
        subscription = encode_message_with_version(ConsumerProtocolSubscription(topics=[self.topic]))
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name=ASSIGNOR, metadata=subscription)
        joined = await self.send_request_to_coordinator(
            "group",
            JoinGroupRequest(
                group_id=self.name,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                member_id=self._member,
                protocol_type=PROTOCOL_TYPE,
                protocols=[protocol],
            ),
        )
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member = joined.member_id
            return False
        if self._has_to_rejoin(joined):
            return False
        self._member, self._generation = joined.member_id, joined.generation_id
        return await self._sync_group(joined)

    async def _sync_group(self, join_response: Any) -> bool:
        """Send SyncGroup, and take the assigned partitions; return False if the member must join again."""
        synced = await self.send_request_to_coordinator(
            "group",
            SyncGroupRequest(
                group_id=self.name,
                generation_id=self._generation,
                member_id=self._member,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=join_response.protocol_name,
                assignments=await self._assign_partitions(join_response.members)
                if join_response.leader == self._member
                else [],
            ),
        )
        if self._has_to_rejoin(synced):
            return False
        await self._set_positions_to_committed_offsets(decode_assignment(synced.assignment))
        return True

    async def _assign_partitions(self, members: Sequence[Any]) -> list[Any]:
        """Return the assignments of all members, which this one makes as the group's leader."""
        topics = {each.member_id: decode_subscription(each.metadata) for each in members}
        wanted = sorted({topic for some in topics.values() for topic in some})
        found = (await self.retry_until_done(lambda: self.client.fetch_metadata(wanted))).topics
        shares = assign_ranges(topics, {topic.name: len(topic.partitions) for topic in found})
        return [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(share))
            for member, share in shares.items()
        ]

    # --- offsets

    async def _set_positions_to_committed_offsets(self, partitions: list[Partition]) -> None:
        """Set the position in each partition to the group's committed offset, or to 0 if there is none."""
        self._positions = dict.fromkeys(partitions, 0)
        if not partitions:
            return
        asked = OFFSETS_TOPIC(name=self.topic, partition_indexes=[index for _, index in partitions])
        request = OffsetFetchRequest(group_id=self.name, topics=[asked])
        answer = await self.send_request_to_coordinator("group", request, NAMED_TOPICS_FETCH[1])
        for topic in answer.topics:
            for each in topic.partitions:
                self._positions[topic.name, each.partition_index] = max(0, each.committed_offset)

    async def _commit_or_rejoin(self) -> bool:
        """Commit; return whether the member had to join again instead."""
        of_partition = COMMITTED_TOPIC.OffsetCommitRequestPartition
        some = [
            of_partition(partition_index=index, committed_offset=offset, committed_metadata="")
            for (_, index), offset in self._positions.items()
        ]
        request = OffsetCommitRequest(
            group_id=self.name,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member,
            topics=[COMMITTED_TOPIC(name=self.topic, partitions=some)],
        )
        answer = await self.send_request_to_coordinator("group", request, NAMED_TOPICS_COMMIT[1])
        for topic in answer.topics:
            for each in topic.partitions:
                if await self._rejoin_if_left_behind(each):
                    return True
        return False

    # --- records

    async def _fetch_from_leaders(self) -> None:
        """Fetch what is new in the assigned partitions, from each leader."""
        by_leader: dict[int, list[Any]] = defaultdict(list)
        for partition, offset in self._positions.items():
            leader = await self.client.find_leader(partition)
            by_leader[leader.node_id].append(
                TOPIC.FetchPartition(
                    partition=partition[1],
                    current_leader_epoch=leader.epoch,
                    fetch_offset=offset,
                    partition_max_bytes=MOST_BYTES,
                )
            )
        await asyncio.gather(*(self._fetch_from_leader(node_id, some) for node_id, some in by_leader.items()))

    async def _fetch_from_leader(self, node_id: int, partitions: list[Any]) -> None:
        """Fetch from one leader, and count the records."""
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=MOST_BYTES,
            isolation_level=READ_COMMITTED,
            session_epoch=-1,  # no session
            topics=[TOPIC(topic=self.topic, partitions=partitions)],
        )
        answer = await self.client.request(request, node_id, highest=NEWEST_WITH_NAMES)
        check_error_code(answer.error_code, f"reading {self.topic}")
        for topic in answer.responses:
            for each in topic.partitions:
                self._count_fetched_records(each)

    def _count_fetched_records(self, answer: Any) -> None:
        """Count the committed records in a partition's answer, and move the position behind them."""
        partition = self.topic, answer.partition_index
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._positions[partition] = max(0, answer.log_start_offset)
        if answer.error_code:
            self.client.forget_leaders_and_coordinators()  # the next turn asks who leads it now
            return
        data = answer.records or b""
        aborted = AbortedProducers(answer.aborted_transactions)
        for position, header in iterate_batches_in_any_format(data):
            check_batch_or_message(data, position)
            if not aborted.is_aborted_or_control(header, data, position):
                self.count += sum(
                    each.offset >= self._positions[partition] for each in iterate_records_in_any_format(data, position)
                )
            self._positions[partition] = max(self._positions[partition], header.next_offset)
