"""What a test says to a broker about records, and what it waits for: the names of `Broker` for it.

Those that wait block, and have a twin to be awaited whose name begins with `a`; how they do it is in other files.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

from minibroker.protocol.records.record import Record
from minibroker.quantities import Duration
from minibroker.testing.durations import DEFAULT_SILENCE, DEFAULT_TIMEOUT
from minibroker.testing.embedded import Embedded, text_of_setting
from minibroker.testing.exchange import Exchange
from minibroker.testing.faults.engine import Faults
from minibroker.testing.filling import topics_from
from minibroker.testing.journal import Journal, Which
from minibroker.testing.records import Headers, Records, SeenRecord, Text, encoded, header_pairs
from minibroker.testing.waiting import Watch
from minibroker.testing.waits import Waits


class Verbs(Embedded):
    """Records, waits and requests."""

    @cached_property
    def journal(self) -> Journal:
        """Return the journal of what the broker saw: switch it `on`, look at it by `requests`, `save` it."""
        return Journal(self)

    @cached_property
    def faults(self) -> Faults:
        """Return the faults, which make things go wrong: `add` one, `clear` them."""
        return Faults(self, self.watch, self.journal)

    @cached_property
    def watch(self) -> Watch:
        """How is waited for anything."""
        return Watch(self)

    @cached_property
    def _records(self) -> Records:
        return Records(self, self.watch)

    @cached_property
    def _waits(self) -> Waits:
        return Waits(self, self.watch, self.journal)

    # --- records ----------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int | None = None, **config: object) -> None:
        """Make a topic, with configs as `retention_ms=1000`. Raises KafkaError, as an admin client would be told."""
        self.loop.run(self._records.create(name, partitions, _configs(config)))

    async def acreate_topic(self, name: str, partitions: int | None = None, **config: object) -> None:
        """Create a topic as `create_topic` does."""
        await self.loop.arun(self._records.create(name, partitions, _configs(config)))

    def fill(self, source: Mapping[str, Any] | str | Path) -> None:
        """Make topics with records: {"orders": ["first", {"key": "k", "value": {"id": 2}}]}, or a file of them.

        The file is .yaml, .json or .jsonl. Raises FillError, OSError, KafkaError.
        """
        self.loop.run(self._records.fill(topics_from(source)))

    async def afill(self, source: Mapping[str, Any] | str | Path) -> None:
        """Fill topics as `fill` does."""
        await self.loop.arun(self._records.fill(topics_from(source)))

    def produce(
        self,
        topic: str,
        *values: Text,
        key: Text = None,
        partition: int = 0,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> int:
        """Append a record a value to a partition, as one batch; the offset of the first. A missing topic is made.

        `timestamp_ms` is the broker's time unless given. Raises KafkaError, as a client would be told.
        """
        records = self._new_records(values, key, headers, timestamp_ms)
        return self.loop.run(self._records.append(topic, partition, records))

    async def aproduce(
        self,
        topic: str,
        *values: Text,
        key: Text = None,
        partition: int = 0,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> int:
        """Append records as `produce` does."""
        records = self._new_records(values, key, headers, timestamp_ms)
        return await self.loop.arun(self._records.append(topic, partition, records))

    def records(self, topic: str, partition: int | None = None) -> list[SeenRecord]:
        """All records of a topic, of whatever format, also those of open and aborted transactions, which say so.

        Raises KafkaError for a partition that the topic does not have.
        """
        return self.loop.call(lambda: self._records.read(topic, partition))

    def expect(
        self, topic: str, count: int = 1, timeout: Duration = DEFAULT_TIMEOUT, *, committed: bool = True
    ) -> list[SeenRecord]:
        """The first `count` records of a topic, once they are there; unless told, only those that count.

        Raises Expired, an AssertionError.
        """
        return self.loop.run(self._records.expect(topic, count, timeout, committed))

    async def aexpect(
        self, topic: str, count: int = 1, timeout: Duration = DEFAULT_TIMEOUT, *, committed: bool = True
    ) -> list[SeenRecord]:
        """Wait for records as `expect` does."""
        return await self.loop.arun(self._records.expect(topic, count, timeout, committed))

    def assert_nothing_produced(self, topic: str, during: Duration = DEFAULT_SILENCE) -> None:
        """Raise AssertionError if a record comes to the topic meanwhile."""
        self.loop.run(self._records.nothing_for(topic, during))

    async def aassert_nothing_produced(self, topic: str, during: Duration = DEFAULT_SILENCE) -> None:
        """Check for silence as `assert_nothing_produced` does."""
        await self.loop.arun(self._records.nothing_for(topic, during))

    def _new_records(
        self, values: tuple[Text, ...], key: Text, headers: Headers, timestamp_ms: int | None
    ) -> list[Record]:
        if not values:
            raise ValueError("there is nothing to produce")
        at_ms = self.loop.call(lambda: self.moving_clock.wall_ms()) if timestamp_ms is None else timestamp_ms
        pairs = header_pairs(headers)
        return [Record(-1, at_ms, encoded(key), encoded(value), pairs) for value in values]

    # --- requests ---------------------------------------------------------------------------------

    def requests(self, api: str | None = None, **which: Unpack[Which]) -> list[Exchange]:
        """Return the requests that the journal has: see `Journal.requests`."""
        return self.journal.requests(api, **which)

    def wait_for_requests(
        self, api: str | None = None, count: int = 1, timeout: Duration = DEFAULT_TIMEOUT, **which: Unpack[Which]
    ) -> list[Exchange]:
        """The requests that the journal has, once there are so many. Raises Expired."""
        return self.loop.run(self._waits.requests(api, count, timeout, which))

    async def await_requests(
        self, api: str | None = None, count: int = 1, timeout: Duration = DEFAULT_TIMEOUT, **which: Unpack[Which]
    ) -> list[Exchange]:
        """Wait as `wait_for_requests` does."""
        return await self.loop.arun(self._waits.requests(api, count, timeout, which))

    # --- groups and logs --------------------------------------------------------------------------

    def wait_for_group(
        self, group: str, members: int | None = None, state: str = "Stable", timeout: Duration = DEFAULT_TIMEOUT
    ) -> list[str]:
        """The members' ids, once the group is in this state with so many of them. Raises Expired."""
        return self.loop.run(self._waits.group(group, members, state, timeout))

    async def await_group(
        self, group: str, members: int | None = None, state: str = "Stable", timeout: Duration = DEFAULT_TIMEOUT
    ) -> list[str]:
        """Wait as `wait_for_group` does."""
        return await self.loop.arun(self._waits.group(group, members, state, timeout))

    def wait_until_caught_up(self, group: str, topic: str, timeout: Duration = DEFAULT_TIMEOUT) -> None:
        """Wait until the group has committed all that the topic has. Raises Expired."""
        self.loop.run(self._waits.caught_up(group, topic, timeout))

    async def await_caught_up(self, group: str, topic: str, timeout: Duration = DEFAULT_TIMEOUT) -> None:
        """Wait as `wait_until_caught_up` does."""
        await self.loop.arun(self._waits.caught_up(group, topic, timeout))

    def wait_for_commit(
        self,
        group: str,
        topic: str,
        partition: int = 0,
        offset: int | None = None,
        timeout: Duration = DEFAULT_TIMEOUT,
    ) -> int:
        """The offset that the group has committed, once that is at least `offset`, or any. Raises Expired."""
        return self.loop.run(self._waits.commit(group, topic, partition, offset, timeout))

    async def await_commit(
        self,
        group: str,
        topic: str,
        partition: int = 0,
        offset: int | None = None,
        timeout: Duration = DEFAULT_TIMEOUT,
    ) -> int:
        """Wait as `wait_for_commit` does."""
        return await self.loop.arun(self._waits.commit(group, topic, partition, offset, timeout))

    def wait_for_high_watermark(
        self, topic: str, offset: int, partition: int = 0, timeout: Duration = DEFAULT_TIMEOUT
    ) -> int:
        """The high watermark, once it is at least `offset`. Raises Expired."""
        return self.loop.run(self._waits.high_watermark(topic, partition, offset, timeout))

    async def await_high_watermark(
        self, topic: str, offset: int, partition: int = 0, timeout: Duration = DEFAULT_TIMEOUT
    ) -> int:
        """Wait as `wait_for_high_watermark` does."""
        return await self.loop.arun(self._waits.high_watermark(topic, partition, offset, timeout))


def _configs(config: dict[str, object]) -> dict[str, str]:
    """A topic's configs by their names in Kafka."""
    return {name.replace("_", "."): text_of_setting(value) for name, value in config.items()}
