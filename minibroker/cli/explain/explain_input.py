"""Finds out what the bytes are that `minibroker explain` is given, and in which notation."""

from __future__ import annotations

import base64
import binascii
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from minibroker.protocol.apis import ApiKey, get_api_name, get_request_class
from minibroker.suggestions import format_suggestion_of_similar_name

if TYPE_CHECKING:
    from minibroker.protocol.explaining.parts import Explanation

MAX_INPUT_BYTES = 64 << 20
NOTATIONS = ("auto", "hex", "base64", "binary")
KINDS = ("auto", "requests", "response", "message", "records", "file", "capture")

_HEX = re.compile(r"(0x)?[0-9a-fA-F\s:]+")
_MAGIC_POSITION = 16
_LEAST_REQUEST_BYTES = 12  # size, key, version, correlation id


class ExplainInput(NamedTuple):
    """The bytes, and the path they come from, None for an argument or standard input."""

    data: bytes
    path: str | None


class InputMeaning(NamedTuple):
    """What the bytes are: a kind, the API and version of a response or message, the topic of records."""

    kind: str = "auto"
    api: str | None = None
    version: int | None = None
    topic: str | None = None


def read_source(source: str, notation: str) -> ExplainInput:
    """Return the bytes of a file, of standard input ("-"), or of an argument. Raises click.UsageError."""
    from minibroker.storage.inspection.inspected_files import identify_file

    if source == "-":
        return ExplainInput(decode_notation(sys.stdin.buffer.read(MAX_INPUT_BYTES + 1), notation), None)
    path = Path(source)
    try:
        is_file = path.is_file()
    except OSError:  # a name that is too long for one
        is_file = False
    if not is_file:
        return ExplainInput(_parse_bytes_of_argument(source, notation), None)
    if path.stat().st_size > MAX_INPUT_BYTES:
        most = f"{source} is larger than {MAX_INPUT_BYTES >> 20} MiB"
        raise click.UsageError(f"{most}: minibroker dump shows large files of a log, editcap -c splits captures")
    if notation == "auto" and identify_file(source) is not None:
        notation = "binary"  # a checkpoint looks like hex
    return ExplainInput(decode_notation(path.read_bytes(), notation), source)


def _parse_bytes_of_argument(text: str, notation: str) -> bytes:
    if notation in ("auto", "hex") and _HEX.fullmatch(text):
        return _decode_hex(text)
    if notation in ("auto", "base64") and (data := _decode_base64(text)) is not None:
        return data
    raise click.UsageError(f"{text[:60]!r} is no file, and neither hex nor base64")


def decode_notation(data: bytes, notation: str) -> bytes:
    """Return the bytes that a file's content stands for. Raises click.UsageError."""
    if len(data) > MAX_INPUT_BYTES:
        raise click.UsageError(f"there are more than {MAX_INPUT_BYTES >> 20} MiB")
    if notation == "binary":
        return data
    text = data.decode("ascii", errors="replace").strip()
    if notation in ("auto", "hex") and _HEX.fullmatch(text):
        return _decode_hex(text)
    if notation == "hex":
        raise click.UsageError("there are characters that are not hex")
    decoded = _decode_base64(text) if text.isprintable() or notation == "base64" else None
    if decoded is None and notation == "base64":
        raise click.UsageError("this is not base64")
    return data if decoded is None else decoded


def _decode_hex(text: str) -> bytes:
    """Return the bytes of hex digits with spaces, colons or "0x". Raises click.UsageError."""
    digits = re.sub(r"[\s:]", "", text.removeprefix("0x"))
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise click.UsageError(f"there is an odd number of hex digits: {len(digits)}") from None


def _decode_base64(text: str) -> bytes | None:
    """Return the decoded bytes, None if the text is empty or not base64."""
    try:
        return base64.b64decode("".join(text.split()), validate=True) if text else None
    except binascii.Error:
        return None


def explain_bytes(explain_input: ExplainInput, meaning: InputMeaning) -> Iterator[Explanation]:
    """Yield the explanation of each message, file or batch, but not of captures. Raises click.UsageError."""
    from minibroker.protocol.explaining.fragments import explain_fragment
    from minibroker.protocol.explaining.messages import explain_records, explain_requests
    from minibroker.protocol.explaining.parts import Explanation
    from minibroker.storage.inspection.explained_files import explain_file
    from minibroker.storage.inspection.inspected_files import identify_file

    inspected = identify_file(explain_input.path) if explain_input.path else None
    kind = (
        guess_input_kind(explain_input.data, inspected is not None, meaning.api)
        if meaning.kind == "auto"
        else meaning.kind
    )
    data = explain_input.data
    if kind == "file":
        if inspected is None:
            raise click.UsageError("the name is not that of a file of a log")
        yield Explanation(explain_file(data, inspected, meaning.topic), data)
    elif kind == "records":
        yield Explanation(explain_records(data, topic=meaning.topic), data)
    elif kind == "requests":
        yield from (Explanation(each, data) for each in explain_requests(data))
    elif kind in ("response", "message"):
        yield _explain_message(data, kind, meaning)
    else:
        yield Explanation(explain_fragment(data, _get_fragment_name(kind)), data)


def _explain_message(data: bytes, kind: str, meaning: InputMeaning) -> Explanation:
    from minibroker.protocol.explaining.messages import explain_message, explain_response
    from minibroker.protocol.explaining.parts import Explanation

    key = parse_api_key(meaning.api)
    message = get_request_class(key)
    version = message.versions[-1] if meaning.version is None else meaning.version
    if version not in message.versions:
        raise click.UsageError(f"{get_api_name(key)} has no version {version}")
    if kind == "response":
        return Explanation(explain_response(data, key, version), data)
    return Explanation(explain_message(data, message, version), data)


def _get_fragment_name(kind: str) -> str:
    """Return a fragment's name as `FRAGMENTS` has it, from one in any case. Raises click.UsageError."""
    from minibroker.protocol.explaining.fragments import FRAGMENTS

    known = {each.lower(): each for each in FRAGMENTS}
    if kind.lower() not in known:
        raise click.UsageError(
            f"there is no kind {kind}{format_suggestion_of_similar_name(kind, [*KINDS, *FRAGMENTS])}"
        )
    return known[kind.lower()]


def guess_input_kind(data: bytes, is_file: bool, api: str | None) -> str:
    """Return the kind of bytes by what they look like. Raises click.UsageError."""
    from minibroker.captures.packets import is_capture
    from minibroker.captures.tshark_text import is_tshark_text

    if is_file:
        return "file"
    if api is not None:
        return "response"
    if (
        is_capture(data)
        or is_saved_exchanges(data)
        or is_tshark_text(data[:_LOOKED_AT].decode("ascii", errors="replace"))
    ):
        return "capture"
    if len(data) >= _LEAST_REQUEST_BYTES:
        size = int.from_bytes(data[:4], "big")
        key, version = (int.from_bytes(data[at : at + 2], "big") for at in (4, 6))
        if size >= 8 and key in ApiKey._value2member_map_ and version in get_request_class(key).versions:
            return "requests"
    if len(data) > _MAGIC_POSITION and data[_MAGIC_POSITION] <= 2:
        return "records"
    raise click.UsageError(
        "these are neither a request nor records; --as says what they are, and --api what a response answers"
    )


def is_saved_exchanges(data: bytes) -> bool:
    """Return whether bytes begin as the files of a proxy and a journal do. No frame does: it would have 2 GB."""
    return data.startswith(b'{"')


_LOOKED_AT = 1000  # bytes of what tshark prints, which begins with a line of "="


def parse_api_key(api: str | None) -> int:
    """Return the key of an API by its name or number. Raises click.UsageError."""
    if api is None:
        raise click.UsageError("--api is needed, such as --api Metadata")
    by_name = {get_api_name(key).lower(): int(key) for key in ApiKey}
    by_name |= {str(int(key)): int(key) for key in ApiKey}
    if api.lower() not in by_name:
        raise click.UsageError(f"there is no API {api}")
    return by_name[api.lower()]
