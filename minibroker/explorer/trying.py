"""The view that tries a request out: its fields with sensible values, its bytes, and the answer to it.

Records are written as lines of text. The bytes go through a real connection, as a client's do, so that faults strike
them and the journal has them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from struct import Struct as Packing
from struct import error as PackingError
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from minibroker.broker.requests.served import SERVED
from minibroker.explorer.addressed_nodes import find_addressed_node
from minibroker.explorer.answers_in_threads import make_answer_in_thread
from minibroker.explorer.trees import make_tree_of_parts
from minibroker.protocol.apis import ApiKey, get_api_name, get_request_class
from minibroker.protocol.describing import format_type, format_versions
from minibroker.protocol.explaining.messages import explain_request, explain_response
from minibroker.protocol.fields import FieldType
from minibroker.protocol.fields import list_declared_fields as fields_of
from minibroker.protocol.headers import RequestHeader, get_request_header_version
from minibroker.protocol.layout import FieldInVersion, make_struct_layout
from minibroker.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from minibroker.protocol.primitives import format_uuid, parse_uuid
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Record
from minibroker.testing.broker import Broker
from minibroker.testing.seen.exchange import find_api_key
from minibroker.testing.seen.subjects import GetTopicName
from minibroker.web.messages import Answer
from minibroker.web.routes import Routes

FIRST_VERSION_OF_FORMAT_1: Final = 2  # of Produce
FIRST_VERSION_OF_FORMAT_2: Final = 3
FORMAT_2: Final = 2
NO_PRODUCER: Final = (-1, -1, -1)  # id, epoch, sequence
DIRECTIVES: Final = (
    "a line that begins with @ is @producer ID EPOCH SEQUENCE, @transactional, @compress CODEC or @tombstone KEY"
)
SIZE: Final = Packing(">i")
KEY_AND_VERSION: Final = Packing(">hh")
VERSION: Final = Packing(">h")
CLIENT_ID: Final = "explorer"
PATIENCE_SECONDS: Final = 10.0
MOST_BYTES: Final = 1 << 20
MOST_ANSWER_BYTES: Final = 8 << 20
FIRST_CORRELATION_ID: Final = 1
CLOSED: Final = (
    "The broker closed the connection without an answer, as it does for bytes that are no request, or of a version "
    "that it does not know."
)
SILENT: Final = (
    f"There was no answer within {PATIENCE_SECONDS:.0f} s: the frame may be shorter than its size says, the request "
    "may wait, or it may want no answer (acks=0)."
)
TOO_LARGE: Final = (
    "There is an answer of {:,} bytes, of which nothing was read: the explorer shows those of up to "
    f"{MOST_ANSWER_BYTES:,} bytes."
)
GROUP: Final = "my-group"
ASSIGNOR: Final = "range"
TOPIC_NAMES: Final = ("name", "topic", "topic_name")
# Values that are more useful than the defaults of the protocol, by the names of fields.
SENSIBLE: Final[dict[str, Any]] = {
    "acks": -1,
    "client_software_name": CLIENT_ID,
    "client_software_version": "1",
    "group_id": GROUP,
    "max_bytes": 1 << 20,
    "max_wait_ms": 500,
    "min_bytes": 1,
    "num_partitions": 1,
    "partition_max_bytes": 1 << 20,
    "protocol_type": "consumer",
    "rebalance_timeout_ms": 60_000,
    "records": "key=hello",
    "replication_factor": 1,
    "session_timeout_ms": 300_000,  # people take longer than programs
    "share_session_epoch": 0,
    "timeout_ms": 30_000,
    "timestamp": -1,
    "transaction_timeout_ms": 900_000,  # the most that a broker allows by default
}
ONE_OF: Final = ("topics", "topic_data", "partitions", "partition_data", "partition_indexes", "groups", "group_ids")
ALSO_ONE_OF: Final = ("coordinator_keys", "resources", "protocols", "groups_names", "topic_names", "transactional_ids")
ComposeRecords = Callable[[str], memoryview]  # records from their lines
OF_TRANSACTION: Final = ("v3_and_below_topics",)
KINDS: Final = {"?": "bool", "d": "float", "16s": "uuid", "string": "string", "bytes": "bytes", "records": "records"}


@dataclass
class _ComposedLines:
    """What the lines say about the whole batch, and its records."""

    now_ms: int
    records: list[Record] = field(default_factory=list)
    producer: tuple[int, ...] = NO_PRODUCER
    is_transactional: bool = False
    compression: Compression = Compression.NONE

    def add_line(self, line: str) -> None:
        """Add the record of a line, or apply its directive, like `@tombstone KEY`. Raises ValueError."""
        match line.split():
            case ["@producer", *numbers] if len(numbers) == len(self.producer):
                self.producer = tuple(map(int, numbers))
            case ["@transactional"]:
                self.is_transactional = True
            case ["@compress", codec] if codec.upper() in Compression.__members__:
                self.compression = Compression[codec.upper()]
            case ["@tombstone", key]:
                self._append_record(key, None)
            case [word, *_] if word.startswith("@"):
                raise ValueError(DIRECTIVES)
            case _:
                key, equals, value = line.partition("=")
                self._append_record(key if equals else None, value if equals else key)

    def _append_record(self, key: str | None, value: str | None) -> None:
        encoded_key, encoded_value = (None if each is None else each.encode() for each in (key, value))
        self.records.append(Record(len(self.records), self.now_ms, encoded_key, encoded_value, ()))


def get_message_format_of_produce(version: int) -> int:
    """Return the format of the records that a version of Produce carries."""
    if version >= FIRST_VERSION_OF_FORMAT_2:
        return FORMAT_2
    return int(version >= FIRST_VERSION_OF_FORMAT_1)


def compose_records(text: str, now_ms: int, magic: int) -> memoryview:
    """Return a batch of format `magic` with a record for each line, `key=value` or `value`. Raises ValueError.

    A line with `@` says who writes, that it is in a transaction, how it is compressed, or which key has no value any
    more. `hex:` and digits are the bytes themselves.
    """
    if text.startswith("hex:"):
        return memoryview(bytes.fromhex(text.removeprefix("hex:")))
    said = _ComposedLines(now_ms)
    for line in text.splitlines():
        said.add_line(line)
    if not said.records:
        return memoryview(b"")
    if magic < FORMAT_2:
        if said.producer != NO_PRODUCER or said.is_transactional:
            raise ValueError(f"messages of format {magic} have no producer and no transaction: use Produce 3 or newer")
        return memoryview(build_message_set(said.records, magic, compression=said.compression))
    producer_id, epoch, sequence = said.producer
    batch = build_batch(
        said.records,
        compression=said.compression,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=said.is_transactional,
    )
    return memoryview(batch)


class ComposedRequest(Struct):
    """A request by its fields."""

    api: str
    version: int
    fields: dict[str, Any]
    client_id: str | None = CLIENT_ID
    correlation_id: Annotated[int, Meta(ge=-(1 << 31), lt=1 << 31)] = FIRST_CORRELATION_ID


class RequestBytes(Struct):
    """A request as bytes, with its size, in hexadecimal digits."""

    hex: Annotated[str, Meta(max_length=2 * MOST_BYTES)]
    node: int | None = None


def make_trying_routes(broker: Broker, get_topic_name: GetTopicName) -> Routes:
    """Return the routes of the view that composes and sends requests."""
    routes = Routes("/try")
    sent_to: list[int] = []  # the nodes of requests: one that names nothing may be of the session of the last one

    @routes.get("/apis")
    async def list_apis() -> list[dict[str, Any]]:
        """Return all APIs of the broker with their versions."""
        return [{"api": get_api_name(key), "key": key, "versions": list(each.versions)} for key, each in SERVED.items()]

    @routes.get("/form")
    async def get_form(api: str, version: int | None = None) -> dict[str, Any]:
        """Return the fields of a request, and values to begin with."""
        key = find_api_key(api)
        message = get_request_class(key)
        number = message.versions[-1] if version is None else version
        message.check_version(number)
        form = _RequestForm(number, number in message.flexible, message.versions[-1], *_choose_example_topic(broker))
        return {"version": number, "fields": form.describe_fields(message), "values": form.choose_values(message)}

    @routes.post("/encode")
    async def encode(asked: ComposedRequest) -> Answer:
        """Return the bytes of a request."""
        now_ms = broker.moving_clock.wall_ms()
        return await make_answer_in_thread(lambda: explain_frame(encode_composed_request(asked, now_ms)))

    @routes.post("/explain")
    async def explain(asked: RequestBytes) -> Answer:
        """Return what bytes say as a request."""
        return await make_answer_in_thread(lambda: explain_frame(_decode_hex(asked.hex)))

    @routes.post("/send")
    async def send(asked: RequestBytes) -> Answer:
        """Send bytes as a client does, to the node that they are for unless one is named; return the answer."""
        frame = _decode_hex(asked.hex)
        node = asked.node or find_addressed_node(broker, frame, get_topic_name) or next(iter(sent_to), None)
        sent_to[:] = [] if node is None else [node]
        explained = await send_request_and_make_explainer(frame, *find_plaintext_address(broker, node))
        number = broker.journal.seen
        return await make_answer_in_thread(lambda: explained() | {"number": number, "node": node})

    return routes


def _choose_example_topic(broker: Broker) -> tuple[str, bytes]:
    """Return the name and the id of a topic to ask for."""
    own = (topic for topic in broker.running.cluster.image.topics.values() if not topic.internal)
    found = next(own, None)
    return ("orders", bytes(16)) if found is None else (found.name, found.topic_id)


class _RequestForm:
    """The fields of a version of a message, and values for them."""

    def __init__(self, version: int, flexible: bool, newest: int, topic: str, topic_id: bytes) -> None:
        self._version, self._flexible, self._newest = version, flexible, newest
        self._topic, self._topic_id = topic, topic_id

    def _list_fields(self, struct: type) -> list[FieldInVersion]:
        """Return the fields of a struct in this version, the tagged ones last."""
        found = make_struct_layout(struct, self._version, self._flexible)
        return [*found.body, *found.tagged]

    def describe_fields(self, struct: type) -> list[dict[str, Any]]:
        """Return the fields of a struct for a form: their names, types and versions."""
        return [self._describe_field(place) for place in self._list_fields(struct)]

    def _describe_field(self, versioned_field: FieldInVersion) -> dict[str, Any]:
        facts = versioned_field.field.facts
        said = {
            "name": versioned_field.name,
            "nullable": versioned_field.nullable,
            "about": facts.about,
            "tagged": versioned_field.tagged,
        }
        return (
            said
            | {"versions": format_versions(facts.present, self._newest)}
            | self._describe_field_type(versioned_field.kind)
        )

    def _describe_field_type(self, field_type: FieldType) -> dict[str, Any]:
        said: dict[str, Any] = {"type": format_type(field_type), "kind": KINDS.get(field_type.code, field_type.code)}
        if field_type.struct is not None:
            return said | {
                "fields": self.describe_fields(field_type.struct),
                "blank": self.choose_values(field_type.struct),
            }
        if field_type.item is not None:
            return said | {
                "item": self._describe_field_type(field_type.item),
                "blank": self._make_value("", field_type.item),
            }
        return said | {"kind": KINDS.get(field_type.code, "integer")}

    def choose_values(self, struct: type) -> dict[str, Any]:
        """Return example values for the fields of a struct, by name."""
        places = self._list_fields(struct)
        values = {place.name: self._choose_value(place) for place in places}
        if {"name", "topic_id"} <= values.keys():  # either of them says which topic is meant
            values |= {"name": self._topic, "topic_id": format_uuid(bytes(16))}
        if {"name", "value"} <= values.keys():  # a config's name, and no topic's
            values["name"] = ""
        return values

    def _choose_value(self, versioned_field: FieldInVersion) -> Any:
        """Return an example value for a field."""
        if (
            versioned_field.name in TOPIC_NAMES
            and versioned_field.kind.code == "string"
            and not versioned_field.nullable
        ):
            return self._topic
        if versioned_field.name in SENSIBLE:
            return SENSIBLE[versioned_field.name]
        if versioned_field.name == "topic_id":
            return format_uuid(self._topic_id)
        if versioned_field.tagged or (versioned_field.nullable and versioned_field.kind.code != "records"):
            return None if versioned_field.nullable else self._make_default(versioned_field)
        return self._make_value(versioned_field.name, versioned_field.kind, self._make_default(versioned_field))

    def _make_default(self, versioned_field: FieldInVersion) -> Any:
        """Return a field's default; None for bytes, or if the protocol declares no default."""
        default = versioned_field.field.facts.default
        return None if default is ... or isinstance(default, bytes) else default

    def _make_value(self, name: str, field_type: FieldType, default: Any = None) -> Any:
        """Return the default, or an empty value of this type; arrays of some names get one item."""
        if field_type.struct is not None:
            return self.choose_values(field_type.struct)
        if field_type.item is not None:
            return [self._make_item(name, field_type.item)] if name in ONE_OF + ALSO_ONE_OF + OF_TRANSACTION else []
        if field_type.code == "string":
            return default or ""
        blank = {"?": False, "bytes": "", "records": "", "16s": format_uuid(bytes(16))}
        return blank.get(field_type.code, 0) if default is None else default

    def _make_item(self, name: str, item: FieldType) -> Any:
        """Return the only item of the array field `name`, as an example."""
        if item.code == "string":
            return self._topic if "topic" in name else GROUP
        value = self._make_value("", item)
        if name == "protocols":
            return value | {"name": ASSIGNOR, "metadata": self._encode_subscription().hex()}
        return value

    def _encode_subscription(self) -> bytes:
        """Return what a member of a classic group says of itself: its version, and the topic that it reads."""
        subscription = ConsumerProtocolSubscription(topics=[self._topic])
        return VERSION.pack(0) + bytes(subscription.encode(0))


def encode_composed_request(composed_request: ComposedRequest, now_ms: int) -> bytes:
    """Return the frame of a request, with its size. Raises ValueError for values that do not fit."""
    key = find_api_key(composed_request.api)
    message = get_request_class(key)
    message.check_version(composed_request.version)
    written = partial(compose_records, now_ms=now_ms, magic=get_message_format_of_produce(composed_request.version))
    header = RequestHeader(
        request_api_key=key,
        request_api_version=composed_request.version,
        correlation_id=composed_request.correlation_id,
        client_id=composed_request.client_id,
    )
    try:
        body = _build_message(message, composed_request.fields, written).encode(composed_request.version)
        frame = header.encode(get_request_header_version(key, composed_request.version)) + bytes(body)
    except (PackingError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"a value does not fit its field: {error}") from None
    return SIZE.pack(len(frame)) + frame


def _build_message(struct: type, values: dict[str, Any], compose_records: ComposeRecords) -> Any:
    """Return a message or a struct with values from JSON. Fields that are not given have their defaults."""
    known = {field.name: field for field in fields_of(struct)}
    strange = values.keys() - known.keys()
    if strange:
        raise ValueError(f"{struct.__name__} has no field {', '.join(sorted(strange))}")
    given = {name: value for name, value in values.items() if value is not None or known[name].optional}
    return struct(**{name: _convert_value(known[name].kind, value, compose_records) for name, value in given.items()})


def _convert_value(field_type: FieldType, value: Any, compose_records: ComposeRecords) -> Any:
    """Return the value of a field from its JSON: hex digits become bytes, lines become records."""
    if value is None:
        return None
    if field_type.struct is not None:
        return _build_message(field_type.struct, value, compose_records)
    if field_type.item is not None:
        return [_convert_value(field_type.item, each, compose_records) for each in value]
    convert: dict[str, Callable[[Any], Any]] = {
        "16s": parse_uuid,
        "bytes": bytes.fromhex,
        "records": compose_records,
    }
    return convert.get(field_type.code, lambda same: same)(value)


def _decode_hex(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise ValueError("these are no hexadecimal digits, or one is missing") from None


def explain_frame(frame: bytes) -> dict[str, Any]:
    """Return a request's bytes and the tree that explains them."""
    return {"hex": frame.hex(), "tree": make_tree_of_parts(explain_request(frame), frame)}


def find_plaintext_address(broker: Broker, node: int | None) -> tuple[str, int]:
    """Return host and port of a PLAINTEXT listener of a node, or of any. Raises RuntimeError if there is none."""
    nodes = [node] if node is not None else list(broker.running.node_ids)
    for each in nodes:
        for listener in broker.ports.listeners.get(each, ()):
            if listener.security_protocol == "PLAINTEXT":
                return listener.host or "127.0.0.1", listener.port
    raise RuntimeError("the explorer sends only to listeners without TLS and login, and there is none")


async def send_request_and_make_explainer(frame: bytes, host: str, port: int) -> Callable[[], dict[str, Any]]:
    """Send a request on a new connection. Return a function that explains the response, or why there is none."""
    began = time.monotonic()
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(frame)
        async with asyncio.timeout(PATIENCE_SECONDS):
            size = await reader.readexactly(SIZE.size)
            (size_bytes,) = SIZE.unpack(size)
            if size_bytes > MOST_ANSWER_BYTES:
                return lambda: {"answer": None, "why": TOO_LARGE.format(size_bytes)}
            answer = size + await reader.readexactly(size_bytes)
    except asyncio.IncompleteReadError:
        return lambda: {"answer": None, "why": CLOSED}
    except TimeoutError:
        return lambda: {"answer": None, "why": SILENT}
    finally:
        writer.close()
    took_ms = (time.monotonic() - began) * 1000
    return lambda: _explain_answer(frame, answer) | {"took_ms": took_ms}


def _explain_answer(frame: bytes, answer: bytes) -> dict[str, Any]:
    """Return the tree of a response and its hex digits, or why it cannot be read."""
    key, version = KEY_AND_VERSION.unpack_from(frame, SIZE.size)
    if key not in ApiKey._value2member_map_:
        return {"answer": None, "why": f"There is an answer, but no API {key} by which to read it: {answer.hex()}"}
    return {
        "answer": make_tree_of_parts(explain_response(answer, key, version), answer),
        "hex": answer[:MOST_BYTES].hex(),
    }
