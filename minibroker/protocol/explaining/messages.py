"""Explains frames and messages, field by field, from the declarations that read and write them.

    frame     size int32, header, body
    stream    one frame after the other

A response does not say what it answers: whoever has its request knows the API and the version.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from struct import Struct as Packing
from typing import Final

from minibroker.protocol.apis import ApiKey, get_api_name, get_request_class, get_response_class
from minibroker.protocol.declare import Message
from minibroker.protocol.describing import find_field_background, format_type
from minibroker.protocol.explaining.batches import explain_batches
from minibroker.protocol.explaining.embedded import explain_embedded_message
from minibroker.protocol.explaining.internal_records import make_record_explainer
from minibroker.protocol.explaining.meanings import find_value_meaning
from minibroker.protocol.explaining.parts import (
    HIDDEN,
    NO_TOPICS,
    ExplainedPart,
    PartCursor,
    TopicNames,
    UnreadablePart,
)
from minibroker.protocol.fields import FieldType
from minibroker.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    find_response_version,
    get_request_header_version,
    get_response_header_version,
)
from minibroker.protocol.layout import FieldInVersion, make_struct_layout, measure_smallest_item_bytes
from minibroker.protocol.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from minibroker.protocol.messages.delegation_tokens import (
    CreateDelegationTokenResponse,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from minibroker.protocol.messages.metadata_records import ConfigRecord, UserScramCredentialRecord
from minibroker.protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from minibroker.protocol.primitives import MAX_TAGS
from minibroker.protocol.records.varints import Bytes

_SECRET_FIELDS: Final[dict[type[Message], tuple[str, ...]]] = {
    AlterUserScramCredentialsRequest: ("salt", "salted_password"),
    UserScramCredentialRecord: ("salt", "stored_key", "server_key"),
    CreateDelegationTokenResponse: ("hmac",),
    RenewDelegationTokenRequest: ("hmac",),
    ExpireDelegationTokenRequest: ("hmac",),
    DescribeDelegationTokenResponse: ("hmac",),
}
# Configs that Kafka keeps as passwords, by the end of their names.
_SECRET_CONFIGS: Final = re.compile(
    r"(?:password|passphrase|secret|secret\.key|jaas\.config|keystore\.key|certificate\.chain|certificates|test\.users)$",
    re.IGNORECASE,
)
SECRET_MESSAGES: Final = frozenset(
    {
        *_SECRET_FIELDS,
        SaslAuthenticateRequest,
        SaslAuthenticateResponse,
        AlterConfigsRequest,
        IncrementalAlterConfigsRequest,
        ConfigRecord,
    }
)
SIZE = Packing(">i")
_NULL_MARKER = Packing(">b")
_LENGTHS = {"string": Packing(">h")}
_KEY_AND_VERSION = Packing(">hh")
CORRELATION_ID_BYTES = 4
UUID = "16s"


def is_secret_field(cursor: PartCursor, part: ExplainedPart, message: type[Message]) -> bool:
    """Return whether `part` of a message is a secret, such as the value of a config that is a password."""
    if part.name in _SECRET_FIELDS.get(message, ()):
        return True
    return part.name == "value" and any(
        each.name == "name" and isinstance(each.value, str) and is_password_config(each.value)
        for each in cursor.list_sibling_parts()
    )


def is_password_config(config: str) -> bool:
    """Return whether the values of a config of this name are never shown."""
    return _SECRET_CONFIGS.search(config) is not None


def explain_message(data: Bytes, message: type[Message], version: int, position: int = 0) -> ExplainedPart:
    """Explain a message without its header. Raises ValueError for a version that it does not have."""
    message.check_version(version)
    cursor = PartCursor(data, position)
    with cursor.add_part(message.__name__, f"version {version}") as whole, cursor.limit_cursor_to_part(whole):
        explain_message_fields(cursor, message, version)
    return whole


def explain_request(data: Bytes, position: int = 0, topics: TopicNames = NO_TOPICS) -> ExplainedPart:
    """Explain the frame of a request at `position`. `topics` are the names of topics by their ids."""
    return _explain_frame(PartCursor(data, position, topics=topics), "request", _explain_request)


def explain_response(
    data: Bytes, api_key: int, version: int, position: int = 0, topics: TopicNames = NO_TOPICS
) -> ExplainedPart:
    """Explain the frame of the response to a request of this API and version."""
    cursor = PartCursor(data, position, topics=topics)
    return _explain_frame(cursor, "response", lambda cursor: _explain_response(cursor, api_key, version))


def explain_requests(data: Bytes) -> Iterator[ExplainedPart]:
    """Explain a stream of requests. The last one may be incomplete."""
    position = 0
    while position < len(data):
        frame = explain_request(data, position)
        yield frame
        position = frame.end


def explain_records(data: Bytes, position: int = 0, topic: str | None = None) -> ExplainedPart:
    """Explain batches or messages without a frame around them, as in a segment; those of `topic`, if it is known."""
    cursor = PartCursor(data, position)
    with cursor.add_part("records", "records") as whole, cursor.limit_cursor_to_part(whole):
        explain_batches(cursor, make_record_explainer(topic, explain_message_fields))
    return whole


def _explain_frame(cursor: PartCursor, name: str, read_content: Callable[[PartCursor], str]) -> ExplainedPart:
    """Explain a size and what follows by `read_content`, which returns what the frame is."""
    with cursor.add_part(name, "frame") as frame, cursor.limit_cursor_to_part(frame, None):
        with cursor.add_part("size", "int32") as size:
            size.value = cursor.read_number(SIZE)
            if size.value < 0:
                raise UnreadablePart(f"a size of {size.value} bytes")
            if size.value > cursor.left_bytes:
                size.meaning = f"{cursor.left_bytes:,} bytes are here"
            cursor.end = min(cursor.end, cursor.position + size.value)
        frame.meaning = read_content(cursor)
        if cursor.position < cursor.end:
            raise UnreadablePart(f"{cursor.left_bytes:,} bytes follow the end of the message")
    return frame


def _explain_request(cursor: PartCursor) -> str:
    """Explain header and body of a request. Return its API and version."""
    cursor.require_bytes(_KEY_AND_VERSION.size)
    key, version = _KEY_AND_VERSION.unpack_from(cursor.data, cursor.position)
    known = key in ApiKey._value2member_map_
    header_version = get_request_header_version(key, version) if known else 1
    with cursor.add_part("header", f"RequestHeader version {header_version}"):
        _explain_struct(cursor, RequestHeader, RequestHeader, header_version)
    if not known:
        raise UnreadablePart(f"there is no API {key}")
    return _explain_message_body(cursor, get_request_class(key), version)


def _explain_response(cursor: PartCursor, api_key: int, version: int) -> str:
    """Explain header and body of the response to a request of this API and version. Return these as text."""
    version = find_response_version(api_key, version, cursor.data, cursor.position + CORRELATION_ID_BYTES)
    is_known = api_key in ApiKey._value2member_map_
    header_version = get_response_header_version(api_key, version) if is_known else 0
    with cursor.add_part("header", f"ResponseHeader version {header_version}"):
        _explain_struct(cursor, ResponseHeader, ResponseHeader, header_version)
    if not is_known:
        raise UnreadablePart(f"there is no API {api_key}")
    return _explain_message_body(cursor, get_response_class(api_key), version)


def _explain_message_body(cursor: PartCursor, message: type[Message], version: int) -> str:
    """Explain the body of a request or response. Return its API and version."""
    if version not in message.versions:
        known = f"{message.versions[0]} to {message.versions[-1]}"
        raise UnreadablePart(f"{message.__name__} has no version {version}, only {known}")
    with cursor.add_part("body", message.__name__):
        explain_message_fields(cursor, message, version)
    return f"{get_api_name(message.api_key)} version {version}"


# --- structs and their fields ---


def _explain_struct(cursor: PartCursor, struct: type, message: type[Message], version: int) -> None:
    """Explain the fields of a struct as parts of the open part."""
    flexible = version in message.flexible
    shape = make_struct_layout(struct, version, flexible)
    for place in shape.body:
        with cursor.add_part(place.name, _format_field_type(place.kind, place.compact)) as part:
            _set_field_background(part, place, struct, message)
            _explain_field_value(cursor, part, place.kind, place, message, version)
    if flexible:
        _explain_tagged_fields(cursor, shape.tagged, struct, message, version)


def _set_field_background(
    part: ExplainedPart, versioned_field: FieldInVersion, struct: type, message: type[Message]
) -> None:
    """Set the versions, the description and the KIP of a field's part."""
    part.versions, part.about, part.kip = find_field_background(versioned_field.name, struct, message)


def _format_field_type(field_type: FieldType, compact: bool) -> str:
    """Return a field's type as Kafka's documentation names it, such as "compact string"."""
    has_length = not field_type.is_fixed and field_type.struct is None
    return f"compact {format_type(field_type)}" if compact and has_length else format_type(field_type)


def _explain_field_value(
    cursor: PartCursor,
    part: ExplainedPart,
    field_type: FieldType,
    versioned_field: FieldInVersion,
    message: type[Message],
    version: int,
) -> None:
    """Explain a field's value of any type."""
    if field_type.is_fixed:
        part.value = cursor.read_number(_PACKINGS[field_type.code])
        part.meaning = find_value_meaning(part.name, part.value)
        if field_type.code == UUID and part.value in cursor.topics:
            part.meaning += f", {cursor.topics[part.value]}"
    elif field_type.struct is not None:
        _explain_nested_struct(cursor, part, field_type.struct, versioned_field, message, version)
    elif field_type.item is not None:
        _explain_array(cursor, part, field_type.item, versioned_field, message, version)
    else:
        _explain_bytes_or_text(cursor, part, field_type, versioned_field, message)


def _explain_nested_struct(
    cursor: PartCursor,
    part: ExplainedPart,
    struct: type,
    versioned_field: FieldInVersion,
    message: type[Message],
    version: int,
) -> None:
    """Explain a struct in a field, after the marker of null if it is nullable."""
    if versioned_field.nullable:
        marker = cursor.read_number(_NULL_MARKER)
        part.prefix_bytes += 1
        if marker == 0 if versioned_field.tagged else marker < 0:
            part.meaning = "null"
            return
    _explain_struct(cursor, struct, message, version)


def _explain_length_prefix(cursor: PartCursor, part: ExplainedPart, code: str, *, compact: bool, nullable: bool) -> int:
    """Read a length or count; below 0 is null. Raises UnreadablePart if null is not allowed."""
    start = cursor.position
    length: int = cursor.read_unsigned_varint() - 1 if compact else cursor.read_number(_LENGTHS.get(code, SIZE))
    part.prefix_bytes += cursor.position - start
    if length < 0 and not nullable:
        raise UnreadablePart(f"length {length}, but null is not allowed")
    return length


def _explain_bytes_or_text(
    cursor: PartCursor,
    part: ExplainedPart,
    field_type: FieldType,
    versioned_field: FieldInVersion,
    message: type[Message],
) -> None:
    """Explain bytes, text or records after their length; secrets stay hidden."""
    length = _explain_length_prefix(
        cursor, part, field_type.code, compact=versioned_field.compact, nullable=versioned_field.nullable
    )
    if length < 0:
        part.meaning = "null"
        return
    if field_type.code == "records":
        missing, topic = length - cursor.left_bytes, cursor.find_enclosing_topic()
        with cursor.limit_cursor_to_part(part, min(length, cursor.left_bytes)):
            explain_batches(cursor, make_record_explainer(topic, explain_message_fields))
        if missing > 0:
            raise UnreadablePart(f"{missing:,} of its {length:,} bytes are not here")
        return
    cursor.require_bytes(length)
    if is_secret_field(cursor, part, message):
        cursor.read_bytes(length)
        part.is_secret, part.meaning = bool(length), HIDDEN if length else ""
    elif field_type.code == "string":
        part.value = cursor.read_bytes(length).decode(errors="replace")
    elif not explain_embedded_message(cursor, part, message, length, explain_message_fields):
        part.value = cursor.read_bytes(length)


def explain_message_fields(cursor: PartCursor, message: type[Message], version: int) -> None:
    """Explain the fields of a message as parts of the open part."""
    cursor.is_secret = cursor.is_secret or message in SECRET_MESSAGES
    _explain_struct(cursor, message, message, version)


def _explain_array(
    cursor: PartCursor,
    part: ExplainedPart,
    item: FieldType,
    versioned_field: FieldInVersion,
    message: type[Message],
    version: int,
) -> None:
    """Explain an array: its count, and a part for each item."""
    count = _explain_length_prefix(
        cursor, part, "array", compact=versioned_field.compact, nullable=versioned_field.nullable
    )
    if count < 0:
        part.meaning = "null"
        return
    part.meaning = f"{count} item{'' if count == 1 else 's'}"
    if count * measure_smallest_item_bytes(item, version, versioned_field.compact) > cursor.left_bytes:
        part.problem = f"{count:,} items do not fit into the {cursor.left_bytes:,} bytes that are left"
    for index in range(count):
        with cursor.add_part(f"[{index}]", _format_field_type(item, versioned_field.compact)) as each:
            _explain_array_item(cursor, each, item, versioned_field, message, version)


def _explain_array_item(
    cursor: PartCursor,
    part: ExplainedPart,
    item: FieldType,
    versioned_field: FieldInVersion,
    message: type[Message],
    version: int,
) -> None:
    """Explain one item of an array."""
    if item.struct is not None:
        _explain_struct(cursor, item.struct, message, version)
    else:
        _explain_field_value(cursor, part, item, versioned_field._replace(nullable=False), message, version)


def _explain_tagged_fields(
    cursor: PartCursor, tagged: tuple[FieldInVersion, ...], struct: type, message: type[Message], version: int
) -> None:
    """Explain the tagged fields at the end of a struct."""
    known = {place.tag: place for place in tagged}
    with cursor.add_part("tagged fields", "tags") as part:
        count = cursor.read_unsigned_varint()
        part.prefix_bytes = cursor.position - part.start
        part.meaning = f"{count} tagged field{'' if count == 1 else 's'}"
        if count > MAX_TAGS:
            raise UnreadablePart(f"{count:,} tagged fields, and {MAX_TAGS:,} are the most")
        for _ in range(count):
            _explain_tagged_field(cursor, known, struct, message, version)


def _explain_tagged_field(
    cursor: PartCursor, known_fields: dict[int, FieldInVersion], struct: type, message: type[Message], version: int
) -> None:
    """Explain one tagged field; one with an unknown tag stays bytes."""
    start = cursor.position
    with cursor.add_part("tag", "tagged field") as part:
        tag, size = cursor.read_unsigned_varint(), cursor.read_unsigned_varint()
        part.prefix_bytes, part.type = cursor.position - start, f"tag {tag}"
        cursor.require_bytes(size)
        place = known_fields.get(tag)
        if place is None:
            part.name, part.value, part.meaning = (
                "unknown tag",
                cursor.read_bytes(size),
                "of a later version, or a vendor's",
            )
            return
        part.name, part.type = place.name, f"tag {tag}, {_format_field_type(place.kind, place.compact)}"
        _set_field_background(part, place, struct, message)
        with cursor.limit_cursor_to_part(part, size):
            _explain_field_value(cursor, part, place.kind, place, message, version)


_PACKINGS = {code: Packing(f">{code}") for code in ("?", "b", "h", "H", "i", "I", "q", "d", "16s")}
