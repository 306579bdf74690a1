"""Explains captures for `minibroker explain`: pcap and pcapng files, what tshark has followed, two files, and what a
proxy or a journal has saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import click

from minibroker.cli.explain.explain_input import ExplainInput, is_saved_exchanges

if TYPE_CHECKING:
    from minibroker.captures.explained_capture import NumberedPair
    from minibroker.captures.kafka_streams import Conversations
    from minibroker.captures.packets import Address
    from minibroker.captures.tcp_streams import Connection
    from minibroker.protocol.explaining.parts import Explanation
    from minibroker.testing.seen.exchange import Exchange

NOTHING = "there are no requests of Kafka"
TLS_HELP = "docs/explain.md says how tshark reads them with the keys of the client"


class PairSelection(NamedTuple):
    """Which pairs are shown: those of the port of a broker, and only one of them."""

    port: int | None = None
    only: int | None = None


def collect_request_response_pairs(
    explain_input: ExplainInput, answers: bytes | None, selection: PairSelection
) -> list[NumberedPair]:
    """Return the requests of a capture, or of one file with the `answers` of another, each with its answer.

    Raises click.UsageError if there are none. What is to be said about the capture goes to standard error.
    """
    if answers is None and is_saved_exchanges(explain_input.data):
        pairs = _select_saved_pairs(explain_input, selection)
    else:
        pairs = _select_captured_pairs(
            _read_capture(explain_input.data)
            if answers is None
            else [_make_connection_of_files(explain_input.data, answers)],
            selection,
        )
    if selection.only is not None and all(each.number != selection.only for each in pairs):
        raise click.UsageError(f"there is no request {selection.only}, the last one is {pairs[-1].number}")
    return pairs


def _select_captured_pairs(connections: list[Connection], selection: PairSelection) -> list[NumberedPair]:
    from minibroker.captures.explained_capture import number_pairs
    from minibroker.captures.kafka_streams import find_conversations

    conversations = find_conversations(connections, selection.port)
    _print_summary(conversations)
    return number_pairs(conversations.found)


def _select_saved_pairs(explain_input: ExplainInput, selection: PairSelection) -> list[NumberedPair]:
    """Return the selected requests and responses that a proxy or a journal has saved, with their numbers there."""
    from minibroker.proxy.flows import FlowError, parse_exchanges

    if selection.port is not None:
        raise click.UsageError("--port is for packets; here --only selects")
    try:
        exchanges = list(parse_exchanges(explain_input.data.splitlines(), explain_input.path or "standard input"))
    except FlowError as error:
        raise click.UsageError(str(error)) from None
    if not exchanges:
        raise click.UsageError(NOTHING)
    return sorted((_make_pair(*each) for each in exchanges), key=lambda pair: pair.number)


def _make_pair(exchange: Exchange, server: str) -> NumberedPair:
    """Return a saved request and its answer like captured ones, with their number in the file."""
    from minibroker.captures.explained_capture import NumberedPair
    from minibroker.captures.kafka_streams import SIZE_BYTES, Frame, RequestAnswerPair
    from minibroker.captures.tcp_streams import Connection, make_stream

    def make_frame(data: bytes, time_ms: float) -> Frame:
        return Frame(0, len(data).to_bytes(SIZE_BYTES, "big") + data, time=time_ms / 1000)

    begin_ms = exchange.started_ms
    answer = (
        make_frame(exchange.answer_bytes, begin_ms + (exchange.duration_ms or 0)) if exchange.answer_bytes else None
    )
    ends = _parse_address(exchange.connection, "client"), _parse_address(server, "server")
    connection = Connection(*ends, make_stream(b""), make_stream(b""), has_begin=True)
    return NumberedPair(
        exchange.number, connection, RequestAnswerPair(make_frame(exchange.request_bytes, begin_ms), answer)
    )


def _parse_address(text: str, default_host: str) -> Address:
    """Return HOST:PORT as an address; any other text becomes `default_host` with port 0."""
    from minibroker.captures.packets import Address

    host, _, port = text.rpartition(":")
    return Address(host.strip("[]"), int(port)) if host and port.isdecimal() else Address(default_host, 0)


def explain_pairs(pairs: list[NumberedPair], only_number: int | None) -> Iterator[Explanation]:
    """Yield the explanations of all requests and answers, or only of the pair with `only_number`."""
    from minibroker.captures.explained_capture import CaptureExplainer

    explainer = CaptureExplainer()
    for pair in pairs:
        if only_number is None or pair.number == only_number:
            yield from explainer.explain_pair(pair)
        elif only_number is not None and pair.number < only_number:
            explainer.learn_topic_ids(pair)


def format_pair_line(numbered_pair: NumberedPair) -> str:
    """Return a line about a pair: its number, time, client, API, sizes, duration and errors."""
    from minibroker.captures.explained_capture import CaptureExplainer, format_capture_time

    pair = numbered_pair.pair
    sizes = " > ".join(f"{len(frame.data):,}" if frame else "none" for frame in (pair.request, pair.answer))
    words = [
        f"#{numbered_pair.number}",
        format_capture_time(pair.time),
        str(numbered_pair.connection.client),
        numbered_pair.name,
    ]
    words += [f"{sizes} bytes"]
    words += [f"{pair.duration_ms:.1f} ms"] if pair.duration_ms is not None else []
    errors = [
        part.meaning
        for item in CaptureExplainer().explain_pair(numbered_pair)
        for _, part in item.part.iterate_parts()
        if part.name.endswith("error_code") and part.value
    ]
    return "  ".join(each for each in [*words, ", ".join(dict.fromkeys(errors))] if each)


def _read_capture(data: bytes) -> list[Connection]:
    from minibroker.captures.packets import Capture, MalformedPacket, is_capture
    from minibroker.captures.tcp_streams import collect_connections
    from minibroker.captures.tshark_text import iterate_connections

    try:
        if not is_capture(data):
            return list(iterate_connections(data.decode("ascii", errors="replace")))
        capture = Capture(data)
        connections = collect_connections(capture.iterate_segments())
    except (MalformedPacket, ModuleNotFoundError) as error:
        raise click.UsageError(str(error)) from error
    if capture.others:
        _print_note(f"packets that are no TCP: {capture.others:,}")
    if capture.problem:
        _print_note(capture.problem)
    return connections


def _make_connection_of_files(request_bytes: bytes, answer_bytes: bytes) -> Connection:
    """Return a connection whose client has sent the bytes of one file, and whose server those of the other."""
    from minibroker.captures.packets import Address
    from minibroker.captures.tcp_streams import Connection, make_stream

    client, server = Address("client", 0), Address("server", 0)
    return Connection(client, server, make_stream(request_bytes), make_stream(answer_bytes), has_begin=True)


def _print_note(text: str) -> None:
    click.echo(f"minibroker: {text}", err=True)


def _print_summary(conversations: Conversations) -> None:
    for each in conversations.found:
        for note in each.notes:
            _print_note(f"{each.connection}: {note}")
    for connection in conversations.tls:
        _print_note(f"{connection}: TLS, {TLS_HELP}")
    if conversations.others:
        _print_note(f"connections that are not with Kafka: {conversations.others:,}")
    if not conversations.found:
        raise click.UsageError(NOTHING)
