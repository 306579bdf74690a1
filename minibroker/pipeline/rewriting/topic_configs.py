"""Reads the topics' formats and codecs from the cluster's metadata, and updates them after a rewriting.

It reads and appends to the metadata log by the storage engine.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from minibroker.pipeline.rewriting.plan import METADATA_TOPIC
from minibroker.pipeline.rewriting.rewrite_settings import RewriteError, RewriteSettings
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.messages.control_records import LeaderChangeMessage
from minibroker.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    TopicRecord,
)
from minibroker.protocol.primitives import MalformedMessage
from minibroker.protocol.records.batch import MAGIC, batches, check_batch, read_header
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.control import ControlType, control_message, control_type
from minibroker.protocol.records.metadata_values import UnknownMetadata, encode_metadata, read_frame
from minibroker.protocol.records.payload import records_of
from minibroker.protocol.records.record import Record
from minibroker.storage.environment import Environment
from minibroker.storage.files import Disk
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.names import log_name
from minibroker.storage.recovery.recovery import Checkpointed, LogDirectoryError, open_log

FORMAT, CODEC, ELIDE = "message.format.version", "compression.type", "record.attributes.elide"
VERSIONS = ("0.9.0", "0.10.2", "3.0")  # by magic: the last version of Kafka with it; 3.0 stands for all newer

_TOPIC = 2  # the resource type of topics
_ANY_LEVEL = 0  # of metadata.version: a ConfigRecord has the same version at each
_READ_BYTES = 8 << 20
_SNAPSHOT = re.compile(r"(?P<end_offset>[0-9]{20})-[0-9]{10}\.checkpoint")
_KINDS: Mapping[int, type[Message]] = {
    kind.api_key: kind
    for kind in (
        AbortTransactionRecord,
        BeginTransactionRecord,
        ConfigRecord,
        EndTransactionRecord,
        TopicRecord,
    )
}

Configs = dict[str, dict[str, str]]


class Change(NamedTuple):
    """A config of a topic that gets another value."""

    topic: str
    name: str
    value: str


def changes(configs: Configs, topics: Iterable[str], settings: RewriteSettings) -> list[Change]:
    """Return the configs that the rewritten topics need and do not have yet.

    Later appends follow the configs, so a topic with an old format or with elided attributes needs them. A codec is set
    only if one was set before: by default producers choose.
    """
    found: list[Change] = []
    for topic in topics:
        known = configs.get(topic, {})
        wanted: dict[str, str] = {}
        if settings.magic is not None and (FORMAT in known or settings.magic < MAGIC):
            wanted[FORMAT] = VERSIONS[settings.magic]
            if format_of(known.get(FORMAT)) == settings.magic:
                del wanted[FORMAT]
        if settings.codec is not None and known.get(CODEC, "producer") != "producer":
            wanted[CODEC] = "uncompressed" if settings.codec == Compression.NONE else settings.codec.name.lower()
        if settings.elide or (known.get(ELIDE) == "true" and (settings.elide is False or settings.is_old)):
            wanted[ELIDE] = "true" if settings.elide else "false"
        found += [Change(topic, name, value) for name, value in wanted.items() if known.get(name) != value]
    return found


def format_of(version: str | None) -> int | None:
    """Return the message format of a `message.format.version`, None for None."""
    if version is None:
        return None
    parts = [int(part) for part in re.findall(r"\d+", version)[:2]]
    return MAGIC if parts >= [0, 11] else 1 if parts >= [0, 10] else 0


class Metadata:
    """The metadata log in the log directory `target`. Methods raise `RewriteError` if it cannot be read."""

    def __init__(self, target: str, *, is_clean: bool) -> None:
        self._directory = f"{target}/{log_name(METADATA_TOPIC, 0)}"
        self._is_clean = is_clean
        self._disk = Disk()
        self._voters = 1
        self._configs: Configs = {}
        self._pending: list[Message] | None = None

    @property
    def exists(self) -> bool:
        """Return whether the directory has the metadata log; `metadata.log.dir` may be another one."""
        return self._disk.exists(self._directory)

    def update(self, topics: Iterable[str], settings: RewriteSettings) -> tuple[list[Change], bool]:
        """Update the configs. Return the changes, and whether they were made.

        They are not made if there is no metadata log, or if other voters have copies of it.
        """
        if not self.exists:
            return changes({}, topics, settings), False
        try:
            log = self._open()
            self._read(log)
            needed = changes(self._configs, topics, settings)
            if needed and self._voters == 1:
                _append(log, needed)
            log.close()
        except (KafkaError, MalformedMessage, LogDirectoryError, OSError) as error:
            raise RewriteError(f"{self._directory} cannot be used: {error}") from error
        return needed, self._voters == 1

    def _open(self) -> Log:
        environment = Environment(self._disk, now_ms, schedule=lambda delay_ms, callback: None)
        known = Checkpointed(clean=self._is_clean)
        return open_log(environment, self._directory, (METADATA_TOPIC, 0), LogSettings(), known)

    def _read(self, log: Log) -> None:
        """Fold the newest whole snapshot, and the log after it."""
        start, data = self._snapshot()
        self._fold(data, 0)
        offset = max(start, log.log_start_offset)
        while (region := log.read(offset, _READ_BYTES)) is not None:
            self._fold(region.read(), start)
            offset = region.next_offset

    def _snapshot(self) -> tuple[int, bytes]:
        """Return (end offset, content) of the newest snapshot, or (0, empty)."""
        for match in filter(None, map(_SNAPSHOT.fullmatch, reversed(self._disk.names(self._directory)))):
            data = self._disk.read_whole(f"{self._directory}/{match[0]}")
            last = None
            for position, header in batches(data):
                last = memoryview(data)[position : position + header.size_bytes] if header.is_control else None
            if last and [control_type(record.key) for record in records_of(last)][-1] == ControlType.SNAPSHOT_FOOTER:
                return int(match["end_offset"]), data
        return 0, b""

    def _fold(self, data: bytes, start: int) -> None:
        for position, header in batches(data):
            check_batch(data, position)
            for record in records_of(memoryview(data)[position : position + header.size_bytes]):
                if header.is_control:
                    self._note_control(record)
                elif record.offset >= start and (message := _message(record.value or b"")):
                    self._note(message)

    def _note_control(self, record: Record) -> None:
        if control_type(record.key) == ControlType.LEADER_CHANGE:
            message = control_message(record)
            if isinstance(message, LeaderChangeMessage):
                self._voters = len(message.voters)

    def _note(self, message: Message) -> None:
        """Apply a record. Those of a transaction (KIP-868) are applied when it ends."""
        if isinstance(message, BeginTransactionRecord):
            self._pending = []
        elif isinstance(message, EndTransactionRecord | AbortTransactionRecord):
            ended, self._pending = self._pending or [], None
            for each in ended if isinstance(message, EndTransactionRecord) else ():
                self._apply(each)
        elif self._pending is not None:
            self._pending.append(message)
        else:
            self._apply(message)

    def _apply(self, message: Message) -> None:
        if isinstance(message, TopicRecord):
            self._configs[message.name] = {}
        elif isinstance(message, ConfigRecord) and message.resource_type == _TOPIC:
            config = self._configs.setdefault(message.resource_name, {})
            if message.value is None:
                config.pop(message.name, None)
            else:
                config[message.name] = message.value


def now_ms() -> int:
    """Return the wall clock's time in ms since 1970."""
    return time.time_ns() // 1_000_000


def _message(value: bytes) -> Message | None:
    """Return a record's message if its type is needed here, else None."""
    try:
        api_key, version, position = read_frame(value)
    except UnknownMetadata as error:
        raise RewriteError(f"the metadata log has {error}") from error
    kind = _KINDS.get(api_key)
    return None if kind is None else kind.decode(value, version, position)


def _append(log: Log, needed: Iterable[Change]) -> None:
    records = [Record(0, now_ms(), None, value, ()) for value in _values(needed)]
    batch = memoryview(build_batch(records))
    log.append(batch, [read_header(batch)], log.leader_epoch)


def _values(needed: Iterable[Change]) -> Iterator[bytes]:
    for topic, name, value in needed:
        record = ConfigRecord(resource_type=_TOPIC, resource_name=topic, name=name, value=value)
        yield encode_metadata(record, _ANY_LEVEL)
