"""`minibroker show`: the fields of a protocol message, and the Python code that reads one version of it.

`protocol.describing` describes the messages; this prints them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from minibroker.cli.shared import json_option, print_table

if TYPE_CHECKING:
    from minibroker.protocol.declare import Message
    from minibroker.protocol.describing import FieldRow

COLUMNS = ("field", "type", "versions", "nullable", "compact", "tag", "default")


@click.command()
@click.argument("name")
@click.argument("version", required=False, type=int)
@click.option("--write", is_flag=True, help="Also show the code that writes it.")
@json_option("Print a JSON array of the messages, without code.")
def show(name: str, version: int | None, write: bool, as_json: bool) -> None:
    """Show the fields of a protocol message: NAME is Metadata, MetadataRequest or TopicRecord.

    By default, the newest version is shown.

    \b
    Example:
        minibroker show Metadata 12
    """
    from minibroker.protocol.describing import messages_named

    messages = messages_named(name)
    if not messages:
        raise click.UsageError(f"there is no message {name}{_suggestion(name)}")
    shown = [(message, _version(message, version)) for message in messages]
    if as_json:
        click.echo(json.dumps([_document(message, number) for message, number in shown]))
        return
    for message, number in shown:
        _print(message, number, write)


def _version(message: type[Message], version: int | None) -> int:
    """Return the version to show. Raises click.UsageError if the message does not have it."""
    newest = message.versions[-1]
    if version is None:
        return newest
    if version not in message.versions:
        raise click.UsageError(f"{message.__name__} has no version {version}, only {_span(message.versions)}")
    return version


def _span(versions: range) -> str:
    first, last = versions[0], versions[-1]
    return str(first) if first == last else f"{first} to {last}"


def _suggestion(name: str) -> str:
    from difflib import get_close_matches

    from minibroker.protocol.describing import all_messages

    names = {message.__name__ for message in all_messages()}
    names |= {name.removesuffix("Request") for name in names if name.endswith("Request")}
    by_lower = {each.lower(): each for each in sorted(names)}
    matches = get_close_matches(name.lower(), by_lower, n=1)
    return f", did you mean {by_lower[matches[0]]}?" if matches else ""


def _document(message: type[Message], version: int) -> dict[str, object]:
    from minibroker.protocol.describing import field_rows

    return {
        "name": message.__name__,
        "api_key": message.api_key,
        "version": version,
        "versions": [message.versions[0], message.versions[-1]],
        "flexible": version in message.flexible,
        "fields": [row._asdict() for row in field_rows(message, version)],
    }


def _print(message: type[Message], version: int, write: bool) -> None:
    from minibroker.protocol.describing import field_rows, reader_text, writer_text

    key = "" if message.api_key < 0 else f", key {message.api_key}"
    flexible = ", flexible" if version in message.flexible else ""
    click.echo(f"{message.__name__} version {version} of {_span(message.versions)}{key}{flexible}\n")
    print_table(COLUMNS, map(_cells, field_rows(message, version)))
    click.echo(f"\n{reader_text(message, version)}\n")
    if write:
        click.echo(f"{writer_text(message, version)}\n")


def _cells(row: FieldRow) -> list[object]:
    marks = ("nullable" if row.nullable else "", "compact" if row.compact else "")
    return ["  " * row.depth + row.name, row.type, row.versions, *marks, row.tag, row.default]
