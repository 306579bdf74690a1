"""`minibroker explain`: every byte of frames, record batches and files, with its name, its value and what it means."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from minibroker.cli.explain.explain_input import (
    KINDS,
    NOTATIONS,
    ExplainInput,
    InputMeaning,
    explain_bytes,
    guess_input_kind,
    read_source,
)
from minibroker.cli.shared import make_json_option

if TYPE_CHECKING:
    from minibroker.protocol.explaining.parts import Explanation

UNREADABLE = 1


@click.command()
@click.argument("source", metavar="FILE|HEX|BASE64|-")
@click.option(
    "--as",
    "kind",
    metavar="KIND",
    default="auto",
    help=f"What the bytes are: {', '.join(KINDS[1:])}, subscription, assignment, sasl, or the key or value of a record "
    "of Kafka's own, such as OffsetCommitValue.  [default: guessed]",
)
@click.option("--format", "notation", type=click.Choice(NOTATIONS), default="auto", help="How they are written.")
@click.option("--api", metavar="NAME", help="The API of a response or message, such as Metadata.")
@click.option("--version", type=int, help="Its version.  [default: the newest]")
@click.option("--about", is_flag=True, help="Also say what each field is for, since when, and by which KIP.")
@click.option("--topic", metavar="NAME", help="The topic of records.  [default: by the file's directory]")
@click.option("--answers", metavar="FILE", help="The answers to the requests in FILE, both as streams of frames.")
@click.option("--port", type=int, help="The port of the brokers in a capture.  [default: found]")
@click.option("--list", "as_list", is_flag=True, help="Of a capture, print a line for each request with its answer.")
@click.option("--only", type=click.IntRange(min=1), help="Of a capture, explain only the request of this number.")
@click.option("--html", "as_html", is_flag=True, help="Print a page with hex beside the fields.")
@click.option("--diff", "other", metavar="FILE|HEX|BASE64", help="Show only how this one differs.")
@click.option("--diff-version", type=int, help="Show only how the message differs in this version.")
@make_json_option("Print a JSON object per frame, with hex for bytes.")
def explain(source: str, **options: Any) -> None:
    """Explain each byte of a request, a response, record batches, a file of a log, or a capture of packets.

    A file that `minibroker proxy --save` or a journal has written is read as a capture.

    A frame begins with its size, as on the wire. Whatever cannot be read ends the part it is in, with the reason, and
    the exit status is 1.

    \b
    Example:
        minibroker explain 0000000a00120000000000050000
        minibroker explain minibroker-data/orders-0/00000000000000000000.log
        minibroker explain --api Metadata --version 12 answer.bin
        minibroker explain --list session.pcapng
        minibroker explain --only 3 session.flows
    """
    given = read_source(source, options["notation"])
    wanted = InputMeaning(options["kind"], options["api"], options["version"], options["topic"])
    other, version = options["other"], options["diff_version"]
    if other is not None or version is not None:
        _print_diff(given, wanted, options["notation"], other, version)
    elif options["answers"] is not None or _is_capture(given, wanted):
        _explain_capture(given, options)
    else:
        _print_explained(explain_bytes(given, wanted), options)


def _is_capture(explain_input: ExplainInput, meaning: InputMeaning) -> bool:
    from minibroker.storage.inspection.inspected_files import identify_file

    if meaning.kind != "auto":
        return meaning.kind == "capture"
    is_file = explain_input.path is not None and identify_file(explain_input.path) is not None
    return guess_input_kind(explain_input.data, is_file, meaning.api) == "capture"


def _print_diff(
    explain_input: ExplainInput, meaning: InputMeaning, notation: str, other_source: str | None, version: int | None
) -> None:
    """Print in what the message differs from that of `other_source`, or from itself in another version."""
    from minibroker.cli.explain.explain_diff import convert_input_to_version, list_differences

    first = [each.part for each in explain_bytes(explain_input, meaning)]
    if version is not None:
        explain_input, meaning = convert_input_to_version(explain_input, meaning, version)
    else:
        explain_input = read_source(other_source or "", notation)
    for line in list_differences(first, [each.part for each in explain_bytes(explain_input, meaning)]):
        click.echo(line)


def _explain_capture(explain_input: ExplainInput, options: dict[str, Any]) -> None:
    from minibroker.cli.explain.explain_captures import (
        PairSelection,
        collect_request_response_pairs,
        explain_pairs,
        format_pair_line,
    )

    answers = None if options["answers"] is None else read_source(options["answers"], options["notation"]).data
    pairs = collect_request_response_pairs(explain_input, answers, PairSelection(options["port"], options["only"]))
    if options["as_list"]:
        for each in pairs:
            click.echo(format_pair_line(each))
        return
    _print_explained(explain_pairs(pairs, options["only"]), options)


def _print_explained(items: Iterable[Explanation], options: dict[str, Any]) -> None:
    """Print what is explained in one of three forms. End with status 1 if something could not be read."""
    from minibroker.protocol.explaining.explained_page import generate_html_page
    from minibroker.protocol.explaining.explained_text import format_part_as_lines, make_json_of_part

    if options["as_html"]:
        items = list(items)
        for piece in generate_html_page(items):
            click.echo(piece, nl=False)
    is_whole = True
    for item in items:
        is_whole = is_whole and not any(item.part.iterate_problems())
        if options["as_json"]:
            heading = {"heading": item.heading} if item.heading else {}
            click.echo(json.dumps(heading | make_json_of_part(item.part)))
        elif not options["as_html"]:
            if item.heading:
                click.echo(item.heading)
            for line in format_part_as_lines(item.part, item.data, with_background=options["about"]):
                click.echo(line)
    if not is_whole:
        sys.exit(UNREADABLE)
