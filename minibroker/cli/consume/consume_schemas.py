"""How `minibroker consume --decode` prints records by the schemas of a registry."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import click

from minibroker.cli.consume.consume_lines import Formatter, record_object
from minibroker.registry.decoding import Decoder, DecodingError, json_text

if TYPE_CHECKING:
    from minibroker.client.record_fetching import Found
    from minibroker.registry.registry_client import RegistryClient


def schema_formatter(registry: RegistryClient, otherwise: Formatter, *, as_json: bool) -> Formatter:
    """Return the formatter of a line with a decoded value, or of a JSON object that has it as "decoded".

    A value that cannot be decoded is printed as `otherwise`, after a line on stderr.
    """
    decoder = Decoder(registry)

    def decoded(found: Found, *, is_key: bool) -> Any:
        data = found.record.key if is_key else found.record.value
        headers = tuple((name, value) for name, value in found.record.headers)
        return decoder.decode(data, headers, is_key=is_key)

    def line(found: Found) -> bytes:
        document = record_object(found.partition, found.record) if as_json else {}
        if as_json:
            with contextlib.suppress(DecodingError):  # many keys are plain texts, which "key" has
                document["decoded_key"] = decoded(found, is_key=True)
        try:
            value = decoded(found, is_key=False)
            return _line(document | {"decoded": value} if as_json else value)
        except DecodingError as error:
            topic, index = found.partition
            click.echo(f"minibroker: {topic}-{index} at {found.record.offset}: {error}", err=True)
            return _line(document) if as_json else otherwise(found)

    return line


def _line(value: Any) -> bytes:
    return json_text(value).encode() + b"\n"
