"""Each number in docs/limits.md is the one in the code, and there is no number that nobody compares."""

from __future__ import annotations

import re

from minibroker.broker import clock
from minibroker.broker import fetch_sessions as sessions
from minibroker.broker.configs.settings_table import BROKER_SETTINGS
from minibroker.broker.control import placement
from minibroker.broker.groups.classic import classic_group, members
from minibroker.broker.groups.streams import streams_group, topology
from minibroker.broker.groups.streams import streams_validation as validation
from minibroker.broker.handlers import acl_requests, delegation_tokens, down_conversion, fetch, watching
from minibroker.broker.monitoring import line_limit, metrics
from minibroker.broker.network import busy_polling, framing, http_server, pipelines, purgatory, tls_layer, unread
from minibroker.broker.requests import context, routes
from minibroker.broker.security import jwks, oauthbearer, scram
from minibroker.broker.share import share_partitions
from minibroker.explorer import explorer_routes, log_pages, trying
from minibroker.protocol import generated_readers, primitives
from minibroker.protocol.explaining import parts
from minibroker.protocol.records import compression
from minibroker.registry.api import http_messages
from minibroker.registry.formats import comparing_budget, decoding_budget, protobuf
from minibroker.registry.formats.avro import avro_reading, avro_types
from minibroker.registry.formats.json_schema import documents
from minibroker.registry.formats.protobuf import protobuf_comparing
from tests.test_readme import README

DOCUMENT = README.parent / "docs" / "limits.md"
NUMBER = re.compile(r"(?<![\w.,-])\d[\d,]*\d|(?<![\w.,-])\d")


def setting(name: str) -> int:
    value: int = BROKER_SETTINGS[name].default
    return value


def kib(size_bytes: int) -> str:
    return amount(size_bytes, 10, "KiB")


def mib(size_bytes: int) -> str:
    return amount(size_bytes, 20, "MiB")


def amount(size_bytes: int, shift: int, unit: str) -> str:
    assert size_bytes >> shift << shift == size_bytes
    return f"{size_bytes >> shift} {unit}"


LARGE_FRAME = f"above {kib(routes.LARGE_FRAME_BYTES)}, in Produce above {kib(routes.LARGE_PRODUCE_BYTES)}"
PHRASES = [
    f"slices of {clock.SLICE_MS} ms",
    f"reading a frame {LARGE_FRAME}",
    f"up to {pipelines.REQUESTS_PER_TURN} run in a turn",
    f"those of all connections together run for {pipelines.TURN_SECONDS * 1000:.0f} ms at most",
    f"up to {mib(down_conversion.MAX_CONVERTED_BYTES)} of records converted",
    f"`socket.request.max.bytes`, {mib(setting('socket.request.max.bytes'))} ",
    f"| items of one array | {generated_readers.MAX_ITEMS:,} |",
    f"| tagged fields of one struct | {primitives.MAX_TAGS:,} |",
    f"| bytes of a string | {primitives.MAX_STRING_BYTES:,} |",
    f"| memory for what is in a frame {LARGE_FRAME} | {mib(routes.ALLOWED_BYTES)}, and "
    f"{routes.ALLOWED_BYTES_A_BYTE} bytes for each byte",
    f"without records sent from files | {mib(routes.MAX_ANSWER_BYTES)} |",
    f"| partitions that one Metadata creates on demand | {placement.MAXIMUM_PARTITIONS_PER_REQUEST:,} |",
    f"| ACLs that one request creates or deletes | {acl_requests.MAX_CHANGES:,} |",
    f"each for every filter that matches it | {acl_requests.MAX_MATCHES:,} |",
    f"| renewers of a delegation token | {delegation_tokens.MAX_RENEWERS:,} |",
    f"partition in DescribeProducers | {context.MOST_NAMINGS} |",
    f"answers above {kib(unread.OWN_UNREAD_BYTES)}, is closed after `connections.max.stall.ms`, "
    f"{setting('connections.max.stall.ms'):,} ms",
    "has since release 4.4",
    f"by default, {setting('max.decompressed.message.bytes'):,}, it is no limit",
    f"in pieces of {kib(compression.STEP_BYTES)}",
    f"in memory at once may have {mib(compression.MAX_UNCOMPRESSED_BYTES)} at most",
    f"of a batch above {mib(compression.MAX_UNCOMPRESSED_BYTES)}, and says so",
    f"`connections.max.idle.ms`, {setting('connections.max.idle.ms'):,} ms",
    f"`connections.max.stall.ms` and {kib(tls_layer.HANDSHAKE_BYTES)}",
    f"`sasl.server.max.receive.size`, {setting('sasl.server.max.receive.size'):,} bytes",
    f"may have {kib(scram.MESSAGE_BYTES_MAX)} with SCRAM, and {kib(oauthbearer.MESSAGE_BYTES_MAX)} with OAUTHBEARER",
    f"a token issuer may have {mib(jwks.BYTES_MAX)}",
    f"{mib(framing.SMALL_FRAMES_BYTES)} for those up to {kib(framing.SMALL_FRAME_BYTES)}, and "
    f"`queued.max.request.bytes`, {mib(framing.LARGE_FRAMES_BYTES)} if it is {setting('queued.max.request.bytes')}",
    f"grown by less than {kib(framing.LEAST_PROGRESS_BYTES)} for {framing.PATIENCE_MS:,} ms",
    f"share {mib(unread.UNREAD_LIMIT_BYTES)}; the first {kib(unread.OWN_UNREAD_BYTES)} of each client",
    f"answers share {mib(purgatory.LIMIT_BYTES)}; those up to {kib(purgatory.OWN_BYTES)} do",
    f"may take {classic_group.RECORDS_OF_PROTOCOLS} times `message.max.bytes`, {setting('message.max.bytes'):,} bytes",
    f"{members.PROTOCOL_BYTES} bytes are added for each protocol",
    f"`max.incremental.fetch.session.cache.slots`, {setting('max.incremental.fetch.session.cache.slots'):,}, with "
    f"{mib(sessions.LIMIT_BYTES)}",
    f"about {round(sessions.LIMIT_BYTES / sessions.PARTITION_BYTES, -6):,.0f} partitions",
    f"more than {fetch.FEW} partitions",
    f"wait for {watching.WATCHED_MAX:,} partitions",
    f"`group.share.max.share.sessions`, {setting('group.share.max.share.sessions'):,}, with "
    f"{share_partitions.SESSION_PARTITIONS_MAX:,} partitions",
    f"may have {topology.MAXIMUM_NAMES:,} topics, configs of internal topics and subtopologies",
    f"A member may have {validation.MAXIMUM_TAGS} tags, and report the offsets of {topology.MAXIMUM_TASKS:,} tasks",
    f"{topology.MAXIMUM_TASKS:,} tasks",
    f"report together, {streams_group.MAXIMUM_OFFSETS:,} offsets",
    f"{line_limit.LINES} are written in a second",
    f"series for {metrics.PARTITIONS_TOLD:,} partitions and {metrics.LAGS_TOLD:,} lags of groups at most",
    f"ids of groups of up to {metrics.GROUP_CHARACTERS} characters",
    f"{http_server.CLIENTS_MAX} clients may be connected",
    f"`socket.busy.poll.us`, {busy_polling.DEFAULT_US} µs, instead of going to sleep",
    f"up to {busy_polling.DEFAULT_US} µs of CPU more",
    f"for {busy_polling.RESPITE_SECONDS * 1000:.0f} ms after another process has taken the CPU",
    f"each {busy_polling.READS_A_TRIAL + 1}th request only",
    f"parts of one tree | {parts.MOST_PARTS:,} |",
    f"in the explorer's lists | {mib(parts.MOST_DECOMPRESSED_BYTES)} |",
    f"in hexadecimal digits | {mib(trying.MOST_ANSWER_BYTES)}, {mib(explorer_routes.PAGES_BYTES)} |",
    f"about a second | {comparing_budget.STEPS:,} | 422",
    f"by Avro, by Protobuf | {avro_types.DEPTH_MAX}, {protobuf_comparing.MAXIMUM_DEPTH} | 422",
    f"an answer names | {comparing_budget.CHANGES:,}, or {kib(comparing_budget.CHARACTERS)} of text",
    f"branch that they may be of | {avro_types.CHECKS_MAX:,} |",
    f"each with its base | {mib(documents.MAXIMUM_IDENTIFIER_CHARACTERS)} |",
    f"one key or value | {decoding_budget.MAXIMUM_VALUES:,} |",
    f"in Avro and Protobuf | {decoding_budget.MAXIMUM_DEPTH} |",
    f"a decimal of Avro | {avro_reading.DECIMAL_BYTES:,} |",
    f"a request above {kib(http_messages.LARGE_BYTES)}, where its schema is one | {http_messages.MOST_VALUES:,} |",
    f"parts of a Protobuf package | {protobuf.MAXIMUM_PACKAGE_PARTS} |",
]


def test_each_documented_number_is_that_of_the_code() -> None:
    text = " ".join(DOCUMENT.read_text().split())
    for phrase in PHRASES:
        assert phrase in text
        text = text.replace(phrase, "")
    assert NUMBER.findall(text.replace("Kafka 4.4", "").replace("422", "")) == []


def test_documented_limits_per_second_have_windows_of_one_second() -> None:
    assert (line_limit.WINDOW_MS, unread.SECOND_MS) == (1000, 1000)


def test_the_documented_explorer_limit_is_that_of_lists_and_of_trees() -> None:
    assert log_pages.BATCH_BYTES == parts.MOST_DECOMPRESSED_BYTES
