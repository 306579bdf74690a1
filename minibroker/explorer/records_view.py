"""The records of a partition: a page of them from an offset on, a search, and each one with the bytes of its batch.

A search ends after a while: its answer says where to go on. Records are also shown as their schemas say, where the
broker has a registry. The loop finds the schemas that records name, since it owns the registry's state. A thread
decodes: data may be large, and a few bytes may stand for a million items.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple

from minibroker.broker.metadata.partitions import Partition
from minibroker.explorer.answers_in_threads import make_answer_in_thread
from minibroker.explorer.log_pages import (
    MatchesRecord,
    RecordQuery,
    TruncatedBytes,
    find_record_at,
    find_records,
    get_full_size,
    read_key_or_value,
)
from minibroker.explorer.topics_view import find_partition
from minibroker.explorer.trees import make_tree_of_parts
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.explaining.messages import explain_records
from minibroker.protocol.legible import make_legible
from minibroker.protocol.messages.log_offsets import ListOffsetsRequest
from minibroker.protocol.records.formats import iterate_batches_in_any_format
from minibroker.protocol.records.record import Record as StoredRecord
from minibroker.protocol.records.varints import Bytes
from minibroker.registry.decoding import Decoder, DecodingError, SchemaSource, WireSchema, format_json
from minibroker.registry.formats.format_decoding import read_schema_id
from minibroker.registry.formats.java_json import make_json_decoder
from minibroker.registry.formats.schema import InvalidSchema
from minibroker.registry.state.registry_errors import RegistryError
from minibroker.testing.broker import Broker
from minibroker.testing.seen.log_reading import Record
from minibroker.testing.verbs.own_requests import execute_request, get_any_node, raise_if_error
from minibroker.web.messages import Answer
from minibroker.web.routes import Routes

SECONDS: Final = 1.0  # for all records of a page; the others are shown as they are, and say so
STOPPED: Final = "those before it took too long; open it to decode it alone"
MOST_RECORDS: Final = 500
LISTED_BYTES: Final = 2_000  # of a key or a value
WHOLE_BYTES: Final = 1 << 20
INDENTED_TIMES: Final = 20  # what a value grows by at most
PIECE_BYTES: Final = 256 << 10  # of a value, to be searched: memory for it all takes longer than the search
ANY_SIZE: Final = 1
NOT_FOUND: Final = -1
# Nothing in it is for a browser to show or to run.
AS_FILE: Final = {"content-disposition": "attachment", "x-content-type-options": "nosniff", "cache-control": "no-store"}
SearchedPart = Literal["any", "key", "value", "header"]


class UndecodedRecord(NamedTuple):
    """What of a record may be decoded."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def make_undecoded_record(record_object: dict[str, Any]) -> UndecodedRecord:
    """Return a record's bytes from the JSON object that a page gets; None for a key or value that is shown in part."""
    headers = tuple((name, _decode_shown_bytes(content)) for name, content in record_object["headers"])
    return UndecodedRecord(
        _decode_shown_bytes(record_object["key"]), _decode_shown_bytes(record_object["value"]), headers
    )


def _decode_shown_bytes(content: dict[str, Any] | None) -> bytes | None:
    """Return the bytes of a key, value or header from its hex digits, None if they are only the beginning."""
    return bytes.fromhex(content["hex"]) if content and len(content["hex"]) == 2 * content["size"] else None


async def find_decoder(broker: Broker, records: list[UndecodedRecord]) -> Decoder | None:
    """Return a decoder with the schemas that records name, or None without a registry that can be read."""
    if broker.has_registry:
        with suppress(RegistryError):
            return Decoder(PrefetchedSchemas(await broker.registry.read_schema_source(), records))
    return None


class PrefetchedSchemas:
    """The schemas that some records name."""

    def __init__(self, source: SchemaSource, records: Iterable[UndecodedRecord]) -> None:
        self._found: dict[int | str, WireSchema | Exception] = {}
        for record in records:
            for data, is_key in ((record.key, True), (record.value, False)):
                named = read_schema_id(data, record.headers, is_key=is_key)
                if named is not None:
                    self._look_up_schema(source, named.schema if isinstance(named.schema, int) else str(named.schema))

    def _look_up_schema(self, source: SchemaSource, id_or_guid: int | str) -> None:
        """Keep a schema, or the error that it is not known, for `find_schema`."""
        if id_or_guid not in self._found:
            try:
                self._found[id_or_guid] = source.find_schema(id_or_guid)
            except (LookupError, InvalidSchema) as error:
                self._found[id_or_guid] = error

    def find_schema(self, id_or_guid: int | str) -> WireSchema:
        """Return the schema with an id or a GUID. Raises LookupError, InvalidSchema."""
        found = self._found[id_or_guid]
        if isinstance(found, Exception):
            raise found
        return found


def add_decoded_values(
    decoder: Decoder, records: list[UndecodedRecord], record_objects: list[dict[str, Any]], max_bytes: int
) -> None:
    """Add `decoded` to keys and values with a schema, or `undecoded` with the reason. Run it in a thread."""
    until = time.monotonic() + SECONDS
    for record, said in zip(records, record_objects, strict=True):
        for name, data in (("key", record.key), ("value", record.value)):
            if data is None or len(data) > max_bytes:
                continue
            left = until - time.monotonic()
            if left > 0:
                said[name] |= _decode_record(decoder, record, data, max_bytes, left, is_key=name == "key")
            elif read_schema_id(data, record.headers, is_key=name == "key") is not None:
                said[name]["undecoded"] = STOPPED


def _decode_record(
    decoder: Decoder, record: UndecodedRecord, data: bytes, max_bytes: int, time_limit_s: float, *, is_key: bool
) -> dict[str, str]:
    """Return fields for JSON: `decoded` and `schema`, or `undecoded` with the reason, or none without a schema id."""
    named = read_schema_id(data, record.headers, is_key=is_key)
    if named is None:
        return {}
    try:
        value = decoder.decode(data, record.headers, is_key=is_key, time_limit_s=time_limit_s)
        text = format_json(value, indent=2, max_length=max_bytes)
    except (DecodingError, TypeError, ValueError) as error:
        return {"undecoded": make_legible(str(error))}
    return {"decoded": text, "schema": str(named.schema)}


def make_record_routes(broker: Broker) -> Routes:
    """Return the routes of records, below those of topics."""
    routes = Routes("/topics/{name}/{index}")

    @routes.get("/records")
    async def list_records(
        name: str, index: int, first: int = 0, count: int = 100, text: str = "", where: SearchedPart = "any"
    ) -> dict[str, Any]:
        """Return records from an offset on, those that contain a text; `next` is where the next page begins."""
        partition = find_partition(broker, name, index)
        wanted = RecordQuery(first, min(count, MOST_RECORDS), make_record_matcher(text, where), LISTED_BYTES)
        found = await find_records(partition, wanted)
        records = [make_record_object(each, show_beginning_of_bytes) for each in found.records]
        end = partition.log.log_end_offset
        data = [make_undecoded_record(each) for each in records]
        decoder = await find_decoder(broker, data)
        if decoder is not None:
            await asyncio.to_thread(add_decoded_values, decoder, data, records, LISTED_BYTES)
        return {"records": records, "next": found.following, "end": end, "stopped": found.stopped}

    @routes.get("/records/{offset}")
    async def get_record(name: str, index: int, offset: int) -> Answer:
        """Return a record whole, with its batch byte by byte."""
        return await answer_whole_record(broker, find_partition(broker, name, index), offset)

    @routes.get("/records/{offset}/{part}")
    async def get_content(name: str, index: int, offset: int, part: Literal["key", "value"]) -> Answer:
        """Return the bytes of a whole key or value, to be saved."""
        content = await read_key_or_value(find_partition(broker, name, index), offset, is_key=part == "key")
        if content is None:
            raise LookupError(f"{name}-{index} has no {part} at offset {offset}")
        headers = AS_FILE | {"content-length": str(sum(map(len, content)))}
        return Answer(_iterate_pieces_with_pauses(content), kind="application/octet-stream", headers=headers)

    _add_routes_by_offset(broker, routes)
    return routes


def _add_routes_by_offset(broker: Broker, routes: Routes) -> None:
    @routes.get("/offset-at")
    async def find_offset(name: str, index: int, time_ms: int) -> dict[str, int]:
        """Return the first offset whose record has this time or a later one, or the end of the partition."""
        partition, cluster = find_partition(broker, name, index), broker.running.cluster
        each = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(partition_index=index, timestamp=time_ms)
        topic = ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[each])
        node = cluster.nodes.get(partition.leader_id, get_any_node(cluster))
        answer = (await execute_request(cluster, node, ListOffsetsRequest(topics=[topic]))).topics[0].partitions[0]
        raise_if_error(answer.error_code, f"{name}-{index}")
        return {"offset": partition.log.log_end_offset if answer.offset == NOT_FOUND else answer.offset}


async def _iterate_pieces_with_pauses(pieces: list[Bytes]) -> AsyncIterator[bytes]:
    """Yield pieces of at most `PIECE_BYTES`, and let the event loop run after each."""
    for piece in pieces:
        for at in range(0, len(piece), PIECE_BYTES):
            yield bytes(piece[at : at + PIECE_BYTES])
            await asyncio.sleep(0)


async def answer_whole_record(broker: Broker, partition: Partition, offset: int) -> Answer:
    """Answer with the record at an offset, or null if there is none, and with the batch that has the offset."""
    batch = read_batch_at(partition, offset)
    found = await find_record_at(partition, offset, batch)
    data = [
        UndecodedRecord(_get_bytes_if_whole(each.key), _get_bytes_if_whole(each.value), each.headers)
        for each in found.records
    ]
    decoder = await find_decoder(broker, data)

    def describe_record() -> dict[str, Any]:
        said = [make_record_object(each, show_all_bytes) for each in found.records]
        if decoder is not None:
            add_decoded_values(decoder, data, said, WHOLE_BYTES)
        explained = explain_records(batch, topic=partition.topic.name)
        return {
            "record": next(iter(said), None),
            "batch": make_tree_of_parts(explained, batch),
            "stopped": found.stopped,
        }

    return await make_answer_in_thread(describe_record)


def _get_bytes_if_whole(data: bytes | None) -> bytes | None:
    """Return a key or value, None if it was cut off."""
    return None if isinstance(data, TruncatedBytes) else data


def make_record_matcher(text: str, searched_part: SearchedPart) -> MatchesRecord:
    """Return a function that tells whether a record has a text, in upper or lower case."""
    wanted = text.lower().encode()
    if not wanted:
        return lambda _: True

    def contains_text(data: bytes | None) -> bool:
        pieces = range(0, 0 if data is None else len(data), PIECE_BYTES)
        return any(wanted in (data or b"")[at : at + PIECE_BYTES + len(wanted) - 1].lower() for at in pieces)

    def matches(record: StoredRecord) -> bool:
        headers = searched_part in ("any", "header") and any(
            contains_text(name.encode()) or contains_text(value) for name, value in record.headers
        )
        return (
            headers
            or (searched_part in ("any", "key") and contains_text(record.key))
            or (searched_part in ("any", "value") and contains_text(record.value))
        )

    return matches


def read_batch_at(partition: Partition, offset: int) -> bytes:
    """Return the bytes of the batch with this offset. Raises KafkaError(OFFSET_OUT_OF_RANGE)."""
    region = partition.log.read(offset, ANY_SIZE)
    if region is None:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} ends before offset {offset}")
    data = region.read()
    for position, header in iterate_batches_in_any_format(data):
        if offset <= header.last_offset:
            return bytes(data[position : position + header.size_bytes])
    return bytes(data)


ShowContent = Callable[[bytes | None], dict[str, Any] | None]


def make_record_object(record: Record, content: ShowContent) -> dict[str, Any]:
    """Return a record for the page, with its bytes as `content` shows them."""
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
        "key": content(record.key),
        "value": content(record.value),
        "headers": [[make_legible(name), content(value)] for name, value in record.headers],
        "transaction": record.transaction,
        "producer_id": record.producer_id,
        "producer_epoch": record.producer_epoch,
        "sequence": record.sequence,
        "leader_epoch": record.leader_epoch,
        "magic": record.magic,
    }


def show_beginning_of_bytes(data: bytes | None, max_bytes: int = LISTED_BYTES) -> dict[str, Any] | None:
    """Return the beginning of bytes for a list: as text where they are text, and as hex."""
    if data is None:
        return None
    said: dict[str, Any] = {"size": get_full_size(data), "hex": data[:max_bytes].hex()}
    with suppress(UnicodeDecodeError):
        said["text"] = data.decode() if get_full_size(data) <= max_bytes else data[:max_bytes].decode(errors="ignore")
    return said


def show_all_bytes(data: bytes | None) -> dict[str, Any] | None:
    """Return bytes in all forms that the page can show. This may take long: run it in a thread."""
    said = show_beginning_of_bytes(data, WHOLE_BYTES)
    if said is not None and said.get("text", "")[:1] in ("{", "[") and said["size"] <= WHOLE_BYTES:
        with suppress(ValueError, RecursionError):
            said["json"] = indent_json(said["text"])
    return said


def indent_json(text: str) -> str:
    """Return JSON with indentation. Raises ValueError if that is many times larger, as deep nesting makes it."""
    pieces: list[str] = []
    left = INDENTED_TIMES * len(text)
    for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(make_json_decoder(text).decode(text)):
        pieces.append(piece)
        left -= len(piece)
        if left < 0:
            raise ValueError("the nesting is too deep to be shown")
    return "".join(pieces)
