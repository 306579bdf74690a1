"""`minibroker show`: the messages of the protocol, their fields and what these are for, and the code that reads them.

`protocol.describing` describes the messages; this prints them.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from minibroker.cli.shared import TABLE_WIDTH, make_json_option, make_names_completer, print_table
from minibroker.suggestions import format_suggestion_of_similar_name

if TYPE_CHECKING:
    from minibroker.protocol.declare import Message
    from minibroker.protocol.describing import FieldRow
    from minibroker.protocol.record_fields import RecordStruct

LEAST_WIDTH = 40  # of the text, however narrow the terminal is


@click.command()
@click.argument("name", required=False, shell_complete=make_names_completer("messages"))
@click.argument("version", required=False, type=int)
@click.option("--write", is_flag=True, help="Also show the code that writes it.")
@make_json_option("Print a JSON array of the messages, without code.")
def show(name: str | None, version: int | None, write: bool, as_json: bool) -> None:
    """Show the fields of a protocol message: NAME is Metadata, MetadataRequest, TopicRecord or RecordBatch.

    By default, the newest version is shown. Without a name, all messages are listed.

    \b
    Example:
        minibroker show Metadata 12
    """
    from minibroker.protocol.describing import find_messages_by_name, find_record_structs, list_message_names

    if name is None:
        _print_messages(as_json)
        return
    messages, structs = find_messages_by_name(name), find_record_structs(name)
    if not messages and not structs:
        raise click.UsageError(
            f"there is no message {name}{format_suggestion_of_similar_name(name, list_message_names())}"
        )
    if structs and version is not None:
        raise click.UsageError(f"{name} has no versions of its own: its formats are {structs[0].versions}")
    shown = [(message, _choose_version(message, version)) for message in messages]
    if as_json:
        documents = [
            *map(_describe_record_fields, structs),
            *(_describe_message_version(message, number) for message, number in shown),
        ]
        click.echo(json.dumps(documents))
        return
    for struct in structs:
        _print_record_struct(struct)
    for message, number in shown:
        _print_message(message, number, write)


def _choose_version(message: type[Message], version: int | None) -> int:
    """Return the version to show. Raises click.UsageError if the message does not have it."""
    newest = message.versions[-1]
    if version is None:
        return newest
    if version not in message.versions:
        raise click.UsageError(
            f"{message.__name__} has no version {version}, only {_format_versions(message.versions)}"
        )
    return version


def _format_versions(versions: range) -> str:
    first, last = versions[0], versions[-1]
    return str(first) if first == last else f"{first} to {last}"


# --- the list ---


def _print_messages(as_json: bool) -> None:
    """Print the name, versions and purpose of each message of the protocol."""
    from minibroker.protocol.describing import list_messages
    from minibroker.protocol.record_fields import STRUCTS

    messages = sorted(list_messages(), key=lambda message: (not _is_api(message), _is_api(message) and message.api_key))
    if as_json:
        click.echo(json.dumps([*map(_describe_record_struct, STRUCTS), *map(_describe_message, messages)]))
        return
    apis = [_make_message_row(message) for message in messages if message.__name__.endswith("Request")]
    records = [(None, struct.names[0], struct.versions.replace("-", " to "), struct.about) for struct in STRUCTS]
    others = [_make_message_row(message) for message in messages if not _is_api(message)]
    print_table(("API", "name", "versions", "what it is"), apis + records + others)


def _is_api(message: type[Message]) -> bool:
    return message.__name__.endswith(("Request", "Response"))


def _make_message_row(message: type[Message]) -> tuple[object, ...]:
    from minibroker.protocol.describing import summarize_message

    key = message.api_key if _is_api(message) else None
    return key, message.__name__.removesuffix("Request"), _format_versions(message.versions), summarize_message(message)


def _describe_message(message: type[Message]) -> dict[str, object]:
    from minibroker.protocol.describing import summarize_message

    versions = [message.versions[0], message.versions[-1]]
    kips = {str(version): kip for version, kip in message.kips.items()}
    said = {"name": message.__name__, "api_key": message.api_key, "versions": versions}
    return {**said, "about": summarize_message(message), "kips": kips}


def _describe_record_struct(struct: RecordStruct) -> dict[str, object]:
    versions = [int(each) for each in (struct.versions[0], struct.versions[-1])]
    return {"name": struct.names[0], "api_key": -1, "versions": versions, "about": struct.about, "kips": {}}


# --- one message ---


def _describe_message_version(message: type[Message], version: int) -> dict[str, object]:
    from minibroker.protocol.describing import describe_fields

    own = {"version": version, "flexible": version in message.flexible}
    return {**_describe_message(message), **own, "fields": [row._asdict() for row in describe_fields(message, version)]}


def _describe_record_fields(struct: RecordStruct) -> dict[str, object]:
    from minibroker.protocol.describing import describe_record_fields

    return {**_describe_record_struct(struct), "fields": [row._asdict() for row in describe_record_fields(struct)]}


def _print_message(message: type[Message], version: int, write: bool) -> None:
    from minibroker.protocol.describing import (
        describe_fields,
        generate_reader_text,
        generate_writer_text,
        summarize_message,
    )

    key = "" if message.api_key < 0 else f", key {message.api_key}"
    flexible = ", flexible" if version in message.flexible else ""
    click.echo(f"{message.__name__} version {version} of {_format_versions(message.versions)}{key}{flexible}")
    kips = [f"KIP-{kip} ({number})" for number, kip in sorted(message.kips.items())]
    changes = f" KIPs by version: {', '.join(kips)}." if kips else ""
    _print_fields(summarize_message(message) + changes, describe_fields(message, version), "0+")
    click.echo(f"{generate_reader_text(message, version)}\n")
    if write:
        click.echo(f"{generate_writer_text(message, version)}\n")


def _print_record_struct(struct: RecordStruct) -> None:
    from minibroker.protocol.describing import describe_record_fields

    click.echo(f"{struct.names[0]} of format {struct.versions.replace('-', ' and ')}")
    _print_fields(struct.about, describe_record_fields(struct), struct.versions)


def _print_fields(about: str, rows: list[FieldRow], usual_versions: str) -> None:
    width = max(shutil.get_terminal_size().columns, LEAST_WIDTH) if sys.stdout.isatty() else TABLE_WIDTH
    for line in (*wrap(about, width), "", *iterate_field_lines(rows, usual_versions, width), ""):
        click.echo(line)


def iterate_field_lines(rows: list[FieldRow], usual_versions: str, width: int) -> Iterator[str]:
    """Yield a line for each field, and below it what it is for. Lines are at most `width` long."""
    names = max((2 * row.depth + len(row.name) for row in rows), default=0)
    types = max((len(row.type) for row in rows), default=0)
    around = {0: usual_versions}  # the versions of what a field is in, by depth
    for row in rows:
        indent = "  " * row.depth
        marks = ", ".join(_iterate_field_remarks(row, around[row.depth]))
        around[row.depth + 1] = row.versions
        line = f"{indent + row.name:<{names}}  {row.type:<{types}}  {marks}".rstrip()
        if len(line) > width:
            line = f"{indent}{row.name}  {row.type}  {marks}".rstrip()
        yield from wrap(line, width, subsequent_indent=f"{indent}    ")
        yield from wrap(row.about, width, initial_indent=f"{indent}    ", subsequent_indent=f"{indent}    ")


def _iterate_field_remarks(row: FieldRow, usual_versions: str) -> Iterator[str]:
    """Yield remarks like "nullable" or "tag 3". The default counts if the field is missing or an unsent tag."""
    if row.nullable:
        yield "nullable"
    if row.compact:
        yield "compact"
    if row.tag is not None:
        yield f"tag {row.tag}"
    if row.versions != usual_versions:
        yield f"versions {row.versions}"
    if row.default and (row.versions != usual_versions or row.tag is not None):
        yield f"default {row.default}"
    if row.kip is not None:
        yield f"KIP-{row.kip}"
