"""Records as their schemas say, where the broker has a registry.

The loop finds the schemas that records name, since it owns the registry's state. A thread decodes: data may be large,
and a few bytes may stand for a million items.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from minibroker.protocol.legible import make_legible
from minibroker.registry.decoding import Decoder, DecodingError, SchemaSource, WireSchema, format_json
from minibroker.registry.formats.format_decoding import read_schema_id
from minibroker.registry.formats.schema import InvalidSchema
from minibroker.registry.state.registry_errors import RegistryError
from minibroker.testing.broker import Broker

SECONDS: Final = 1.0  # for all records of a page; the others are shown as they are, and say so
STOPPED: Final = "those before it took too long; open it to decode it alone"


class UndecodedRecord(NamedTuple):
    """What of a record may be decoded."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def get_undecoded_record(shown: dict[str, Any]) -> UndecodedRecord:
    """Return what of a record is decoded, from what the page shows of it: not what is only shown in part."""
    headers = tuple((name, _get_bytes_if_whole(content)) for name, content in shown["headers"])
    return UndecodedRecord(_get_bytes_if_whole(shown["key"]), _get_bytes_if_whole(shown["value"]), headers)


def _get_bytes_if_whole(content: dict[str, Any] | None) -> bytes | None:
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
                named = read_schema_id(data, record.headers, key=is_key)
                if named is not None:
                    self._look_up_schema(source, named.schema if isinstance(named.schema, int) else str(named.schema))

    def _look_up_schema(self, source: SchemaSource, id_or_guid: int | str) -> None:
        if id_or_guid not in self._found:
            try:
                self._found[id_or_guid] = source.find_schema(id_or_guid)
            except (LookupError, InvalidSchema) as error:
                self._found[id_or_guid] = error

    def find_schema(self, named: int | str) -> WireSchema:
        """Return the schema with an id or a GUID. Raises LookupError, InvalidSchema."""
        found = self._found[named]
        if isinstance(found, Exception):
            raise found
        return found


def add_decoded_values(
    decoder: Decoder, records: list[UndecodedRecord], shown: list[dict[str, Any]], max_bytes: int
) -> None:
    """Add `decoded` to keys and values with a schema, or `undecoded` with the reason. Run it in a thread."""
    until = time.monotonic() + SECONDS
    for record, said in zip(records, shown, strict=True):
        for name, data in (("key", record.key), ("value", record.value)):
            if data is None or len(data) > max_bytes:
                continue
            left = until - time.monotonic()
            if left > 0:
                said[name] |= _decode_record(decoder, record, data, max_bytes, left, is_key=name == "key")
            elif read_schema_id(data, record.headers, key=name == "key") is not None:
                said[name]["undecoded"] = STOPPED


def _decode_record(
    decoder: Decoder, record: UndecodedRecord, data: bytes, max_bytes: int, seconds: float, *, is_key: bool
) -> dict[str, str]:
    named = read_schema_id(data, record.headers, key=is_key)
    if named is None:
        return {}
    try:
        value = decoder.decode(data, record.headers, is_key=is_key, seconds=seconds)
        text = format_json(value, indent=2, max_length=max_bytes)
    except (DecodingError, TypeError, ValueError) as error:
        return {"undecoded": make_legible(str(error))}
    return {"decoded": text, "schema": str(named.schema)}
