"""Explains the bytes that some fields carry, which brokers do not read: what members of a group and SASL say.

They need not be what they look like. If they cannot be read, they stay bytes.
"""

from __future__ import annotations

from minibroker.protocol.declare import Message
from minibroker.protocol.explaining.internal_records import ReadMessage, explain_int16_field
from minibroker.protocol.explaining.parts import HIDDEN, ExplainedPart, PartCursor, UnreadablePart
from minibroker.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

# By the message and the field, the messages of Java's consumers: a version comes first.
_CONSUMERS: dict[tuple[str, str], type[Message]] = {
    ("JoinGroupRequest", "metadata"): ConsumerProtocolSubscription,
    ("JoinGroupResponse", "metadata"): ConsumerProtocolSubscription,
    ("DescribeGroupsResponse", "member_metadata"): ConsumerProtocolSubscription,
    ("GroupMetadataValue", "subscription"): ConsumerProtocolSubscription,
    ("ConsumerGroupMemberMetadataValue", "metadata"): ConsumerProtocolSubscription,
    ("SyncGroupRequest", "assignment"): ConsumerProtocolAssignment,
    ("GroupMetadataValue", "assignment"): ConsumerProtocolAssignment,
    ("SyncGroupResponse", "assignment"): ConsumerProtocolAssignment,
    ("DescribeGroupsResponse", "member_assignment"): ConsumerProtocolAssignment,
}
_SASL_FIELDS = {("SaslAuthenticateRequest", "auth_bytes"), ("SaslAuthenticateResponse", "auth_bytes")}
_GS2_HEADERS = (b"n,", b"y,", b"p=")  # begin a client's first message (RFC 5801), as in "n,,"
# The attributes of SCRAM's messages (RFC 5802), and whether they prove the password.
_SCRAM = {
    "n": ("user", False),
    "r": ("nonce", False),
    "s": ("salt", True),
    "i": ("iterations", False),
    "c": ("channel binding", False),
    "p": ("client's proof", True),
    "v": ("server's signature", True),
    "e": ("error", False),
    "m": ("reserved", False),
    "a": ("authorization id", False),
    "tokenauth": ("delegation token", False),
}


def explain_embedded_message(
    cursor: PartCursor, part: ExplainedPart, message: type[Message], size_bytes: int, read_message: ReadMessage
) -> bool:
    """Explain the next `size_bytes` as parts of `part`, if the field is known. Return False if they stay bytes."""
    place = message.__name__, part.name
    if place in _SASL_FIELDS:
        explain_sasl_token(cursor, part, size_bytes)
        return True
    kind = _CONSUMERS.get(place)
    return kind is not None and _explain_consumer_message(cursor, part, kind, size_bytes, read_message)


def _explain_consumer_message(
    cursor: PartCursor, part: ExplainedPart, message_class: type[Message], size_bytes: int, read_message: ReadMessage
) -> bool:
    """Explain a message of the consumer protocol as parts of `part`. Return False if the bytes are none."""
    inner = cursor.make_inner_cursor(cursor.data, cursor.position, cursor.position + size_bytes)
    try:
        with inner.add_part(message_class.__name__, "message") as whole:
            explain_versioned_message(inner, message_class, read_message)
    except UnreadablePart:
        return False
    part.parts, part.meaning = whole.parts, message_class.__name__
    cursor.read_bytes(size_bytes)
    if inner.left_bytes:
        part.parts.append(ExplainedPart("user data of a later version", "bytes", inner.position, inner.end))
    return True


def explain_versioned_message(cursor: PartCursor, message_class: type[Message], read_message: ReadMessage) -> None:
    """Explain a message behind its version. As Java does, take what is known of a later version."""
    version = explain_int16_field(cursor, "version").value
    if version < 0:
        raise UnreadablePart(f"there is no version {version}")
    read_message(cursor, message_class, min(version, message_class.versions[-1]))


def explain_sasl_token(cursor: PartCursor, part: ExplainedPart, size_bytes: int) -> None:
    """Explain a message of a SASL exchange: PLAIN, SCRAM, or bytes that stay hidden."""
    start = cursor.position
    data = cursor.read_bytes(size_bytes)
    if data.count(b"\0") == 2 and not data.startswith(b"n,"):
        _explain_plain_token(part, data, start)
    elif data[:2] in (*_GS2_HEADERS, b"r=", b"c=", b"v=", b"e=") and b"\1auth=" not in data:
        _explain_scram_token(part, data, start)
    else:
        part.is_secret, part.meaning = bool(data), HIDDEN if data else ""


def _explain_plain_token(part: ExplainedPart, data: bytes, start: int) -> None:
    part.meaning = "SASL PLAIN (RFC 4616)"
    for name, value in zip(("authorization id", "user", "password"), data.split(b"\0"), strict=True):
        part.parts.append(_make_text_part(name, value, start, len(value), is_secret=name == "password"))
        start += len(value) + 1


def _explain_scram_token(part: ExplainedPart, data: bytes, start: int) -> None:
    part.meaning = "SCRAM (RFC 5802)"
    has_header = data[:2] in _GS2_HEADERS
    for index, each in enumerate(data.split(b",")):
        letter, _, value = each.partition(b"=")
        name, is_secret = _SCRAM.get(letter.decode(errors="replace"), ("extension", False))
        if has_header and index == 0:
            name, value, is_secret = "channel binding flag", each, False
        elif has_header and not each:
            name = "authorization id"
        part.parts.append(_make_text_part(name, value, start, len(each), is_secret=is_secret))
        start += len(each) + 1


def _make_text_part(name: str, value: bytes, start: int, size_bytes: int, *, is_secret: bool) -> ExplainedPart:
    text = HIDDEN if is_secret else value.decode(errors="replace")
    return ExplainedPart(name, "string", start, start + size_bytes, value=text, is_secret=is_secret)
