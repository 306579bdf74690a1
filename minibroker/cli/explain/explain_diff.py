"""How explained messages differ: two of them with --diff, two versions of the same one with --diff-version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from minibroker.cli.explain.explain_input import ExplainInput, InputMeaning, guess_input_kind, parse_api_key
from minibroker.protocol.apis import ApiKey, get_api_name, get_request_class, get_response_class
from minibroker.protocol.explaining.explained_text import format_part_value
from minibroker.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    get_request_header_version,
    get_response_header_version,
)
from minibroker.protocol.primitives import MalformedMessage

if TYPE_CHECKING:
    from minibroker.protocol.explaining.parts import ExplainedPart

SIZE_BYTES = 4


def list_differences(first_parts: list[ExplainedPart], second_parts: list[ExplainedPart]) -> list[str]:
    """Return a line for each difference, "-" of the first and "+" of the second; in wire order of both."""
    is_single = len(first_parts) == len(second_parts) == 1
    left, right = _map_paths_to_texts(first_parts, is_single), _map_paths_to_texts(second_parts, is_single)
    lines: list[str] = []
    for path in dict.fromkeys([*left, *right]):
        before, after = left.get(path), right.get(path)
        if before != after:
            lines += [f"- {path}: {before}"] * (before is not None) + [f"+ {path}: {after}"] * (after is not None)
    return lines


def _map_paths_to_texts(parts: list[ExplainedPart], is_single: bool) -> dict[str, str]:
    """Return the text of each part by its path, such as `topics[0].name`; several messages are numbered."""
    found: dict[str, str] = {}
    for index, part in enumerate(parts):
        found.update(_iterate_paths_and_texts(part, part.name if is_single else f"{part.name} {index + 1}"))
    return found


def _iterate_paths_and_texts(part: ExplainedPart, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of a part, and then of each part in it."""
    said = " ".join(each for each in (part.type, format_part_value(part), part.meaning, part.problem) if each)
    yield path, said
    for each in part.parts:
        yield from _iterate_paths_and_texts(
            each, f"{path}.{each.name}" if not each.name.startswith("[") else f"{path}{each.name}"
        )


def convert_input_to_version(
    explain_input: ExplainInput, meaning: InputMeaning, version: int
) -> tuple[ExplainInput, InputMeaning]:
    """Return the bytes of the same message in another version, and their meaning.

    Raises click.UsageError for what is no whole message, or has no such version.
    """
    kind = guess_input_kind(explain_input.data, False, meaning.api) if meaning.kind == "auto" else meaning.kind
    if kind not in ("requests", "response", "message"):
        raise click.UsageError("--diff-version is for a request, a response or a message")
    try:
        data = (
            _convert_request_to_version(explain_input.data, version)
            if kind == "requests"
            else _convert_message_to_version(explain_input.data, kind, meaning, version)
        )
    except MalformedMessage as error:
        raise click.UsageError(f"--diff-version needs a whole message: {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise click.UsageError(f"it cannot be written in version {version}: {error}") from error
    return ExplainInput(data, None), meaning._replace(kind=kind, version=version)


def _convert_request_to_version(data: bytes, version: int) -> bytes:
    key, old = (int.from_bytes(data[at : at + 2], "big") for at in (4, 6))
    if key not in ApiKey._value2member_map_ or len(data) != SIZE_BYTES + int.from_bytes(data[:SIZE_BYTES], "big"):
        raise click.UsageError("--diff-version needs one whole request")
    message = get_request_class(key)
    _check_version_is_supported(version, message.versions, key)
    header, position = RequestHeader.decode_from(data, get_request_header_version(key, old), SIZE_BYTES)
    body = message.decode(data, old, position)
    header.request_api_version = version
    written = header.encode(get_request_header_version(key, version)) + body.encode(version)
    return len(written).to_bytes(SIZE_BYTES, "big") + written


def _convert_message_to_version(data: bytes, kind: str, meaning: InputMeaning, version: int) -> bytes:
    key = parse_api_key(meaning.api)
    message = get_response_class(key) if kind == "response" else get_request_class(key)
    old = message.versions[-1] if meaning.version is None else meaning.version
    for number in (old, version):
        _check_version_is_supported(number, message.versions, key)
    if kind == "message":
        return bytes(message.decode(data, old).encode(version))
    header, position = ResponseHeader.decode_from(data, get_response_header_version(key, old), SIZE_BYTES)
    written = header.encode(get_response_header_version(key, version)) + message.decode(data, old, position).encode(
        version
    )
    return len(written).to_bytes(SIZE_BYTES, "big") + written


def _check_version_is_supported(version: int, versions: range, key: int) -> None:
    if version not in versions:
        raise click.UsageError(f"{get_api_name(key)} has no version {version}")
