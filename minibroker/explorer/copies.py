"""A frame in the forms in which people take it elsewhere: hex, JSON, Python, and kcat where it has such a command."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from shlex import quote
from struct import Struct
from typing import Any, Final

from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.formats import iterate_batches_in, iterate_records_in
from minibroker.testing.seen.exchange import Exchange
from minibroker.testing.seen.subjects import NameOf, find_topic_name

SIZE: Final = Struct(">i")
MOST_BYTES: Final = 1 << 16  # of a request: nobody pastes more
MOST_ANSWER_BYTES: Final = 1 << 18  # which JSON has, too
LINE_DIGITS: Final = 96
MOST_COMMANDS: Final = 20

PYTHON = '''\
"""Sends {api} of version {version}, and prints the answer."""

import socket

from minibroker.protocol.apis import ApiKey
from minibroker.protocol.explaining.messages import explain_response

frame = bytes.fromhex("""
{digits}
""")

with socket.create_connection(({host!r}, {port})) as connection:
    connection.sendall(frame)
    answer = connection.recv(4, socket.MSG_WAITALL)
    answer += connection.recv(int.from_bytes(answer, "big"), socket.MSG_WAITALL)

for depth, part in explain_response(answer, ApiKey.{key}, {version}).iterate_parts():
    print("  " * depth + part.name, part.value if part.value is not None else "", part.meaning)
'''


def make_copyable_texts(exchange: Exchange, servers: str, name_of: NameOf) -> dict[str, str]:
    """Return the forms of a request by their names."""
    frame = SIZE.pack(len(exchange.request_bytes)) + exchange.request_bytes
    if len(frame) > MOST_BYTES:
        return {}
    found = {"hex": frame.hex()}
    if len(exchange.answer_bytes) <= MOST_ANSWER_BYTES:
        found["JSON"] = json.dumps(exchange.as_json(), indent=2, ensure_ascii=True)
    if isinstance(exchange.api_key, ApiKey):  # a proxy passes others, too
        found["Python"] = _write_python_code(exchange, frame, servers)
    commands, request = _KCAT.get(exchange.api_key), exchange.request
    if commands is not None and request is not None:
        found["kcat"] = "\n".join(commands(request, f"kcat -b {quote(servers)}", name_of))
    return {name: text for name, text in found.items() if text}


def _write_python_code(exchange: Exchange, frame: bytes, servers: str) -> str:
    host, _, port = servers.partition(",")[0].rpartition(":")
    digits = frame.hex()
    lines = "\n".join(digits[at : at + LINE_DIGITS] for at in range(0, len(digits), LINE_DIGITS))
    return PYTHON.format(
        api=exchange.api,
        version=exchange.version,
        key=exchange.api_key.name,
        digits=lines,
        host=host.strip("[]"),
        port=port,
    )


def _write_metadata_commands(request: Any, kcat: str, name_of: NameOf) -> Iterator[str]:
    names = [name for topic in request.topics or () if (name := find_topic_name(topic, name_of))]
    yield from [f"{kcat} -L -t {quote(name)}" for name in names[:MOST_COMMANDS]] or [f"{kcat} -L"]


def _write_fetch_commands(request: Any, kcat: str, name_of: NameOf) -> Iterator[str]:
    for topic in request.topics[:MOST_COMMANDS]:
        name = find_topic_name(topic, name_of) or ""
        for each in topic.partitions[:MOST_COMMANDS] if name else ():
            yield f"{kcat} -C -t {quote(name)} -p {each.partition} -o {each.fetch_offset} -e"


def _write_list_offsets_commands(request: Any, kcat: str, name_of: NameOf) -> Iterator[str]:
    for topic in request.topics[:MOST_COMMANDS]:
        for each in topic.partitions[:MOST_COMMANDS]:
            yield f"{kcat} -Q -t {quote(f'{topic.name}:{each.partition_index}:{each.timestamp}')}"


def _write_produce_commands(request: Any, kcat: str, name_of: NameOf) -> Iterator[str]:
    for topic in request.topic_data[:MOST_COMMANDS]:
        name = find_topic_name(topic, name_of) or ""
        for each in topic.partition_data[:MOST_COMMANDS] if name and not request.transactional_id else ():
            target, data = f"{kcat} -P -t {quote(name)} -p {each.index}", bytes(each.records or b"")
            with suppress(KafkaError):  # what is damaged cannot be written, and nobody pastes what is large
                for position, _ in iterate_batches_in(data):
                    records = iterate_records_in(data, position, limit_bytes=MOST_BYTES)
                    yield from (_make_produce_command(each, target) for each in islice(records, MOST_COMMANDS))


def _make_produce_command(record: Any, target: str) -> str:
    """Return a command that writes the record; kcat reads it from its input, and cannot write every byte."""
    key = "" if record.key is None else f" -k {_escape_for_shell(record.key)}"
    headers = "".join(f" -H {quote(f'{name}=')}{_escape_for_shell(value or b'')}" for name, value in record.headers)
    if record.value is None:
        return f"printf '' | {target}{key}{headers} -Z"
    return f"printf %b {_escape_for_shell(record.value)} | {target}{key}{headers}"


def _escape_for_shell(data: bytes) -> str:
    """Return bytes for a shell; those that are not printable ASCII in octal, as printf and bash read them."""
    if all(0x20 <= byte < 0x7F and byte != 0x5C for byte in data):
        return quote(data.decode())
    return "$'" + "".join(chr(byte) if byte in _PLAIN else f"\\{byte:03o}" for byte in data) + "'"


_PLAIN: Final = frozenset(range(0x20, 0x7F)) - {0x27, 0x5C}
_KCAT: Final[dict[ApiKey, Callable[[Any, str, NameOf], Iterator[str]]]] = {
    ApiKey.METADATA: _write_metadata_commands,
    ApiKey.FETCH: _write_fetch_commands,
    ApiKey.LIST_OFFSETS: _write_list_offsets_commands,
    ApiKey.PRODUCE: _write_produce_commands,
}
