"""Find out what speaks on a port: Kafka, Kafka behind TLS, HTTP, or nothing that answers.

The client encodes the request, but its answer may be anything, so that the socket is a plain one.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from minibroker.client.client_connection import Connection, guess_foreign_protocol
from minibroker.client.connection_settings import Address
from minibroker.protocol.messages.cluster import ApiVersionsRequest

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

ANSWER_BYTES = 1 << 20
START = struct.Struct(">ii")  # the size of an answer, and its correlation id


class PortSpeaker(Enum):
    """What answers on a port."""

    KAFKA = "Kafka"
    TLS = "TLS"
    HTTP = "HTTP"
    SSH = "SSH"
    AMQP = "AMQP"
    OTHER = "something else"
    CLOSES = "closes the connection"
    SILENT = "does not answer"


class PortProbe(NamedTuple):
    """What answers on a port; its certificate if it has one, in DER."""

    speaker: PortSpeaker
    certificate: bytes | None = None


def probe_port(address: Address, host: str, timeout_s: float) -> PortProbe:
    """Connect to an IP address of `host`, and find out what answers there. Raises OSError if it refuses."""
    speaker = _identify_protocol(address, timeout_s)
    if speaker not in (PortSpeaker.KAFKA, PortSpeaker.HTTP, PortSpeaker.SSH, PortSpeaker.AMQP):
        certificate = _get_certificate(address, host, timeout_s)
        if certificate is not None or speaker is PortSpeaker.TLS:
            return PortProbe(PortSpeaker.TLS, certificate)
        speaker = PortSpeaker.HTTP if _speaks_http(address, timeout_s) else speaker
    return PortProbe(speaker)


def _speaks_http(address: Address, timeout_s: float) -> bool:
    """Return whether a server answers an HTTP request. Many wait for the end of a line that others do not send."""
    with contextlib.suppress(OSError), socket.create_connection(address, timeout_s) as connected:
        connected.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return _guess_protocol(connected.recv(START.size)) is PortSpeaker.HTTP
    return False


def _identify_protocol(address: Address, timeout_s: float) -> PortSpeaker:
    """Send an ApiVersions request, and return what the first bytes of the answer look like."""
    correlation_id, request = Connection("minibroker-doctor", ANSWER_BYTES).encode_request(ApiVersionsRequest(), 0)
    deadline_s = time.monotonic() + timeout_s
    start = b""
    with socket.create_connection(address, timeout_s) as connected:
        try:
            connected.sendall(request)
            while len(start) < START.size:
                connected.settimeout(max(0.001, deadline_s - time.monotonic()))
                received = connected.recv(START.size - len(start))
                start += received
                if not received:
                    return _guess_protocol(start) if start else PortSpeaker.CLOSES
        except TimeoutError:
            return _guess_protocol(start) if start else PortSpeaker.SILENT
        except OSError:
            return PortSpeaker.CLOSES
    size, answered_id = START.unpack(start)
    return PortSpeaker.KAFKA if 0 < size <= ANSWER_BYTES and answered_id == correlation_id else _guess_protocol(start)


def _guess_protocol(start: bytes) -> PortSpeaker:
    return PortSpeaker(guess_foreign_protocol(start) or PortSpeaker.OTHER)


def _get_certificate(address: Address, host: str, timeout_s: float) -> bytes | None:
    """Return the server's certificate, without checking it; None if the server does not speak TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        contextlib.suppress(OSError, ValueError),
        socket.create_connection(address, timeout_s) as connected,
        context.wrap_socket(connected, server_hostname=host) as secured,
    ):
        return secured.getpeercert(binary_form=True)
    return None


def parse_certificate(certificate: bytes) -> Certificate | None:
    """Return a certificate that was received, or None if it is malformed."""
    from cryptography import x509

    try:
        return x509.load_der_x509_certificate(certificate)
    except ValueError:
        return None


def list_certificate_names(certificate: Certificate) -> list[str]:
    """Return the names and addresses that a certificate is for."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
