"""Members of a share group that come, go, fall silent and are killed, and say at random what became of their records.

They speak by hand, so that what they saw is known to the record; `history.py` says what of it is right.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from conformance.share.history import Delivery, End, History, Life, Record
from conformance.wire.connection import Connection, ConnectionClosed
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest
from minibroker.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from minibroker.protocol.primitives import format_uuid
from minibroker.protocol.records.batch import iterate_batches
from minibroker.protocol.records.payload import iterate_records_of_batch
from tests.clients.share_requests import ACCEPT, GAP, REJECT, RELEASE, RENEW

HEARTBEAT, FETCH = 1, 2  # versions
FORGET = -1  # say nothing, so that the lock ends
ENDS = {GAP: End.ACCEPTED, ACCEPT: End.ACCEPTED, RELEASE: End.RELEASED, REJECT: End.REJECTED}
FATES = {ACCEPT: 60, RELEASE: 20, REJECT: 5, RENEW: 7, FORGET: 8}
FATES_OF_MARKERS = {GAP: 1}  # they are no records
FATES_AFTER_RENEWAL = {ACCEPT: 80, RELEASE: 20}
MARKER = b"a marker"
HEARTBEAT_S = 0.3
FETCH_BYTES = 1 << 20
REQUESTS_OF_A_LIFE = 20  # on average
ENDINGS = ("leave", "lose connection", "lose connection while fetching", "freeze")

FetchTopic = ShareFetchRequest.FetchTopic
AcknowledgeTopic = ShareAcknowledgeRequest.AcknowledgeTopic
# What a broker that has just started may say of a partition or a group.
NOT_READY = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.LEADER_NOT_AVAILABLE,
}


class Gone(Exception):
    """The member's life is over: the group does not know it any more, or the broker has done wrong."""


class Torture:
    """A group, its topic, and what all members have seen. `incarnation` counts the starts of the broker.

    Once `is_calm`, members accept everything, and live on until `stop`.
    """

    def __init__(self, address: str, group: str, topic: str, topic_id: bytes, history: History) -> None:
        self.address = address
        self.group = group
        self.topic = topic
        self.topic_id = topic_id
        self.history = history
        self.incarnation = 0
        self.is_calm = False
        self.stop = threading.Event()
        self.values: dict[Record, bytes] = {}
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.lost: list[tuple[int, float]] = []  # connections that ended: of which incarnation, and when
        self._lock = threading.Lock()

    def count(self, what: str, number: int = 1) -> None:
        """Count some of a kind, for the report at the end."""
        with self._lock:
            self.counts[what] += number

    def run_members(self, chosen: random.Random) -> None:
        """Be one member after the other, until `stop` is set."""
        while not self.stop.is_set():
            life, connection = Life(self.incarnation), None
            try:
                connection = Connection(self.address)
            except OSError:
                time.sleep(0.02)
                continue
            with connection:
                if life.incarnation == self.incarnation:  # else it is not known of which one the connection is
                    self._live(Member(self, connection, life, chosen), life)

    def _live(self, member: Member, life: Life) -> None:
        self.count("members")
        try:
            member.live()
        except TimeoutError:
            self.count("time-outs")  # on a machine that is busy; a broker that hangs does not come to the end
        except (ConnectionClosed, OSError):
            self.lost.append((life.incarnation, time.monotonic()))
        except Gone:
            pass
        except Exception as error:  # the thread would end in silence
            self.faults.append(f"{type(error).__name__}: {error}")
            raise
        finally:
            life.gone_at = life.gone_at or time.monotonic()


class Said(NamedTuple):
    """What a request says of records, and when it was sent."""

    types: dict[Record, int]
    deliveries: dict[Record, Delivery]
    sent_at: float

    def batches(self, make: Any) -> dict[int, list[Any]]:
        """Return AcknowledgementBatches by partition: ranges of offsets, with one type for all or one for each."""
        found: dict[int, list[Any]] = {}
        for (partition, offset), kind in sorted(self.types.items()):
            batches = found.setdefault(partition, [])
            if batches and batches[-1].last_offset == offset - 1:
                batches[-1].last_offset = offset
                batches[-1].acknowledge_types.append(kind)
            else:
                batches.append(make(first_offset=offset, last_offset=offset, acknowledge_types=[kind]))
        for batch in (each for batches in found.values() for each in batches):
            if len(set(batch.acknowledge_types)) == 1:
                del batch.acknowledge_types[1:]
        return found


class Member:
    """One life of a member."""

    def __init__(self, torture: Torture, connection: Connection, life: Life, chosen: random.Random) -> None:
        self._torture = torture
        self._history = torture.history
        self._connection = connection
        self._life = life
        self._chosen = chosen
        self._member_id = format_uuid(uuid.uuid4().bytes)
        self._member_epoch = self._session_epoch = 0
        self._beat_at = 0.0
        self._assigned: set[int] = set()
        self._held: dict[Record, Delivery] = {}
        self._to_say: dict[Record, tuple[int, float]] = {}  # a type, and when to say it

    def live(self) -> None:
        """Read and acknowledge until the end. Raises Gone, ConnectionClosed or OSError if it comes of itself."""
        left = self._chosen.randrange(2 * REQUESTS_OF_A_LIFE)
        while not self._torture.stop.is_set() and (left > 0 or self._torture.is_calm):
            self._beat()
            if not self._assigned:
                time.sleep(0.05)
            elif self._session_epoch and self._to_say and self._chosen.random() < 0.5:
                self._acknowledge()
                left -= 1
            else:
                self._fetch()
                left -= 1
        self._end("leave" if self._torture.is_calm else self._chosen.choice(ENDINGS))

    def _end(self, how: str) -> None:
        self._torture.count(f"{how}")
        if how == "freeze" and self._session_epoch:  # for longer than its locks and the group's patience, perhaps
            time.sleep(self._chosen.uniform(0.5, 2.5) * self._history.lock_s)
            self._acknowledge()
        self._life.gone_at = time.monotonic()
        if how == "lose connection while fetching":
            self._history.unseen[self._life.incarnation].append(self._life.gone_at)
            self._connection.send(self._fetch_request({}), FETCH)
        elif how == "leave":
            if self._session_epoch:
                self._session_epoch = -1
                self._connection.ask(self._acknowledge_request({}), FETCH)
            self._connection.ask(self._heartbeat(member_epoch=-1), HEARTBEAT)

    def _check(self, holds: bool, what: str) -> None:
        """Note what the broker has done wrong. Raises Gone then."""
        if not holds:
            self._torture.faults.append(what)
            raise Gone

    # --- the group ------------------------------------------------------------------------------------

    def _heartbeat(self, **fields: Any) -> ShareGroupHeartbeatRequest:
        said = {"group_id": self._torture.group, "member_id": self._member_id, "member_epoch": self._member_epoch}
        return ShareGroupHeartbeatRequest(**{**said, **fields})

    def _beat(self) -> None:
        now = time.monotonic()
        if self._assigned and now < self._beat_at + HEARTBEAT_S:
            return
        self._beat_at = now
        joining = {} if self._member_epoch else {"subscribed_topic_names": [self._torture.topic]}
        answer = self._connection.ask(self._heartbeat(**joining), HEARTBEAT)
        if answer.error_code in NOT_READY:
            return
        if self._member_epoch and answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            raise Gone
        self._check(answer.error_code == 0, f"heartbeat: {answer}")
        self._member_epoch = answer.member_epoch
        if answer.assignment is not None:
            topics = answer.assignment.topic_partitions
            self._assigned = {
                index for each in topics if each.topic_id == self._torture.topic_id for index in each.partitions
            }

    # --- fetching -------------------------------------------------------------------------------------

    def _fetch_request(self, said: Mapping[int, list[Any]]) -> ShareFetchRequest:
        partitions = [
            FetchTopic.FetchPartition(
                partition_index=index, partition_max_bytes=FETCH_BYTES, acknowledgement_batches=said.get(index, [])
            )
            for index in sorted(self._assigned | set(said))
        ]
        return ShareFetchRequest(
            group_id=self._torture.group,
            member_id=self._member_id,
            share_session_epoch=self._session_epoch,
            max_wait_ms=self._chosen.choice((0, 20, 100)),
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            max_records=self._chosen.choice((1, 10, 100, 500)),
            batch_size=self._chosen.choice((1, 10, 100)),
            share_acquire_mode=self._chosen.randrange(2),
            topics=[FetchTopic(topic_id=self._torture.topic_id, partitions=partitions)],
        )

    def _fetch(self) -> None:
        """Acquire records, and acknowledge some on the way, which a session's first request may not."""
        said = self._say(renewing=False) if self._session_epoch else Said({}, {}, time.monotonic())
        answer = self._connection.ask(
            self._fetch_request(said.batches(FetchTopic.FetchPartition.AcknowledgementBatch)), FETCH
        )
        now = time.monotonic()
        self._next_session_epoch(answer)
        for part in (part for topic in answer.responses for part in topic.partitions):
            self._note(said, part.partition_index, part.acknowledge_error_code, now)
            if part.error_code:
                self._check(part.error_code in NOT_READY, f"fetch: {part}")
                self._torture.count(f"fetches answered {ErrorCode(part.error_code).name}")
            self._take(part, said.sent_at, now)

    def _take(self, part: Any, sent_at: float, received_at: float) -> None:
        """Note what was acquired, and decide what becomes of it."""
        values = dict(values_in(bytes(part.records or b"")))
        for each in part.acquired_records:
            self._torture.count("deliveries", each.last_offset - each.first_offset + 1)
            for offset in range(each.first_offset, each.last_offset + 1):
                record = part.partition_index, offset
                self._check(offset in values, f"{record} was acquired, but did not come")
                known = self._torture.values.setdefault(record, values[offset])
                self._check(known == values[offset], f"{record} was {known!r}, and is {values[offset]!r}")
                delivery = Delivery(self._life, each.delivery_count, sent_at, received_at)
                self._history.deliveries[record].append(delivery)
                self._held[record] = delivery
                self._decide(record, FATES_OF_MARKERS if values[offset] is MARKER else FATES)

    def _decide(self, record: Record, fates: Mapping[int, int]) -> None:
        is_calm = self._torture.is_calm and fates is FATES
        kind = ACCEPT if is_calm else self._chosen.choices(*zip(*fates.items(), strict=True))[0]
        takes_long = kind == RENEW or fates is FATES_AFTER_RENEWAL
        wait_s = self._chosen.uniform(0.4, 0.7) * self._history.lock_s if takes_long else 0.0
        if kind == FORGET:
            del self._held[record]
            self._to_say.pop(record, None)  # of an earlier delivery, which this member has lost
        else:
            self._to_say[record] = kind, time.monotonic() + wait_s

    # --- acknowledging --------------------------------------------------------------------------------

    def _say(self, *, renewing: bool) -> Said:
        """Take some of what is to be said, and note it; renewals need a request that fetches nothing."""
        now = time.monotonic()
        ready = sorted(
            record for record, (kind, at) in self._to_say.items() if at <= now and (renewing or kind != RENEW)
        )
        some = ready[: self._chosen.randrange(len(ready)) + 1] if ready else []
        said = Said({record: self._to_say.pop(record)[0] for record in some}, {}, now)
        for record, kind in said.types.items():
            delivery = said.deliveries[record] = self._held.pop(record)
            if kind != RENEW:
                delivery.end, delivery.end_at = ENDS[kind], said.sent_at
        return said

    def _acknowledge(self) -> None:
        said = self._say(renewing=True)
        request = self._acknowledge_request(
            said.batches(AcknowledgeTopic.AcknowledgePartition.AcknowledgementBatch),
            is_renew_ack=RENEW in said.types.values(),
        )
        answer = self._connection.ask(request, FETCH)
        now = time.monotonic()
        self._next_session_epoch(answer)
        for part in (part for topic in answer.responses for part in topic.partitions):
            self._note(said, part.partition_index, part.error_code, now)

    def _acknowledge_request(self, said: Mapping[int, list[Any]], **fields: Any) -> ShareAcknowledgeRequest:
        partitions = [
            AcknowledgeTopic.AcknowledgePartition(partition_index=index, acknowledgement_batches=batches)
            for index, batches in said.items()
        ]
        return ShareAcknowledgeRequest(
            group_id=self._torture.group,
            member_id=self._member_id,
            share_session_epoch=self._session_epoch,
            topics=[AcknowledgeTopic(topic_id=self._torture.topic_id, partitions=partitions)] if partitions else [],
            **fields,
        )

    def _next_session_epoch(self, answer: Any) -> None:
        self._check(answer.error_code == 0, f"session: {answer}")
        self._session_epoch += 1

    def _note(self, said: Said, partition: int, code: int, now: float) -> None:
        """Note what the broker says of a partition's acknowledgements: it takes all of them, or none."""
        mine = {record: kind for record, kind in said.types.items() if record[0] == partition}
        if not mine:
            return
        self._torture.count(f"acknowledgements answered {ErrorCode(code).name}", len(mine))
        if code == 0:
            for record, kind in mine.items():
                self._note_taken(record, kind, said, now)
        elif code == ErrorCode.INVALID_RECORD_STATE:
            since = min(said.deliveries[record].since for record in mine)
            self._check(now - since >= self._history.lock_s, f"refused within {now - since:.3f} s: {mine}")
            for record in mine:
                said.deliveries[record].end = End.NONE
        else:
            self._check(code in NOT_READY, f"acknowledging {mine}: {ErrorCode(code).name}")

    def _note_taken(self, record: Record, kind: int, said: Said, now: float) -> None:
        delivery = said.deliveries[record]
        # Of a record that was lost before, an acknowledgement may be taken, too: when it is behind the start offset.
        was_held = now - delivery.since < self._history.lock_s
        if kind != RENEW:
            delivery.is_sure = was_held
        elif was_held:
            delivery.since = said.sent_at
            self._held[record] = delivery
            self._decide(record, FATES_AFTER_RENEWAL)


def values_in(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield offset and value of the records in whole batches, MARKER for those in control batches."""
    for position, header in iterate_batches(data):
        for record in iterate_records_of_batch(data, position):
            yield record.offset, MARKER if header.is_control else bytes(record.value or b"")
