"""The subject of a certificate as a text, as Java's X500Principal.getName() writes it (RFC 2253).

Kafka makes the names of principals from these texts, and ACLs contain them, so every character counts. The last
attribute comes first. Only ten types of attributes have a keyword; for others Java writes the object identifier and the
value's DER in hexadecimal. Libraries write names differently, so this file parses the certificate up to its subject.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

SEQUENCE, SET, OBJECT_IDENTIFIER, EXPLICIT_VERSION = 0x30, 0x31, 0x06, 0xA0
LONG_LENGTH = 0x80
BEFORE_SUBJECT = 4  # serial number, signature, issuer, validity
KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
# UTF8String, PrintableString, TeletexString, IA5String, GeneralString, BMPString; not UniversalString
TEXTS: Final = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
ESCAPED: Final = frozenset(',=+<>#;"\\')


class MalformedName(ValueError):
    """Bytes that are not a certificate, or not a name."""


class _Element(NamedTuple):
    """One DER element: its tag, its content, and all of its bytes."""

    tag: int
    content: bytes
    whole: bytes


def read_certificate_subject(certificate: bytes) -> str:
    """Return the subject of a certificate in DER. Raises MalformedName."""
    try:
        fields = _iterate_der_elements(
            next(_iterate_der_elements(next(_iterate_der_elements(certificate)).content)).content
        )
        first = next(fields)
        for _ in range(BEFORE_SUBJECT if first.tag == EXPLICIT_VERSION else BEFORE_SUBJECT - 1):
            next(fields)
        return format_distinguished_name(next(fields).whole)
    except (StopIteration, IndexError):
        raise MalformedName("a certificate that cannot be read") from None


def format_distinguished_name(name: bytes) -> str:
    """Return a name (an RDNSequence in DER) as a text. Raises MalformedName."""
    try:
        sets = list(_iterate_der_elements(next(_iterate_der_elements(name)).content))
        return ",".join(
            "+".join(_format_attribute(each) for each in _iterate_der_elements(one.content)) for one in reversed(sets)
        )
    except (StopIteration, IndexError):
        raise MalformedName("a name that cannot be read") from None


def _iterate_der_elements(data: bytes) -> Iterator[_Element]:
    """Yield consecutive elements. Raises MalformedName."""
    position = 0
    while position < len(data):
        start, tag, length = position, data[position], data[position + 1]
        position += 2
        if length >= LONG_LENGTH:
            size = length - LONG_LENGTH
            length = int.from_bytes(data[position : position + size], "big")
            position += size
        end = position + length
        if end > len(data):
            raise MalformedName("an element that is longer than what holds it")
        yield _Element(tag, data[position:end], data[start:end])
        position = end


def _format_attribute(attribute: _Element) -> str:
    parts = list(_iterate_der_elements(attribute.content))
    if len(parts) != 2:
        raise MalformedName("an attribute that is not a type and a value")
    identifier, value = parts
    number = _format_object_identifier(identifier.content)
    keyword = KEYWORDS.get(number)
    if keyword is None or value.tag not in TEXTS:
        return f"{keyword or number}=#{value.whole.hex()}"
    return f"{keyword}={_escape_attribute_value(value.content.decode('utf-8', 'replace'))}"


def _format_object_identifier(content: bytes) -> str:
    """Return an object identifier as text, such as 2.5.4.3."""
    arcs: list[int] = []
    arc = 0
    for byte in content:
        arc = arc << 7 | byte & 0x7F
        if byte < 0x80:
            arcs.append(arc)
            arc = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))


def _escape_attribute_value(text: str) -> str:
    """Escape special characters, and spaces at both ends."""
    start = len(text) - len(text.lstrip(" \r"))
    end = len(text.rstrip(" \r"))
    characters = (_escape_character(one, is_inside=start <= index < end) for index, one in enumerate(text))
    return "".join(characters)


def _escape_character(character: str, *, is_inside: bool) -> str:
    if character == "\0":
        return "\\00"
    if character in ESCAPED or (character in " \r" and not is_inside):
        return f"\\{character}"
    return character
