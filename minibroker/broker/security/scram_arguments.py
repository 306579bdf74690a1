"""SCRAM credentials in the form of kafka-storage's option --add-scram, for a new cluster.

SCRAM-SHA-256=[name=alice,password=alice-secret]
SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import Final

from minibroker.broker.security.scram import (
    BY_NAME,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SALT_BYTES,
    ScramMechanism,
    make_scram_credential,
    salt_password,
)
from minibroker.protocol.messages.metadata_records import UserScramCredentialRecord

DEFAULT_ITERATIONS: Final = "4096"


class ScramArgumentError(ValueError):
    """An invalid argument, which kafka-storage refuses too. The message is one line without secrets."""


def parse_scram_credential(argument: str) -> UserScramCredentialRecord:
    """Return the record for an argument such as SCRAM-SHA-256=[name=a,password=b]. Raises ScramArgumentError."""
    mechanism, parts = _split_credential_argument(argument)
    name, salt_text, password, salted_text = (
        parts.pop(key, None) for key in ("name", "salt", "password", "saltedpassword")
    )
    iterations = _parse_iterations(mechanism, parts.pop("iterations", DEFAULT_ITERATIONS))
    if parts:
        raise ScramArgumentError(f"Unknown SCRAM configurations: {', '.join(sorted(parts))}")
    if not name:
        raise ScramArgumentError("You must supply 'name' to add-scram")
    salt = os.urandom(SALT_BYTES) if salt_text is None else _decode_base64("salt", salt_text)
    if password is not None:
        salted = salt_password(mechanism, password, salt, iterations)
    elif salted_text is None:
        raise ScramArgumentError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    elif salt_text is None:
        raise ScramArgumentError("You must supply 'salt' with 'saltedpassword' to add-scram")
    else:
        salted = _decode_base64("saltedpassword", salted_text)
    return make_scram_credential(name, mechanism, salt, iterations, salted)


def _split_credential_argument(argument: str) -> tuple[ScramMechanism, dict[str, str]]:
    """Return the mechanism and the values by key. Raises ScramArgumentError."""
    name, equals, config = argument.strip().partition("=")
    if not equals:
        raise ScramArgumentError("Failed to find equals sign in SCRAM argument")
    if name not in BY_NAME:
        raise ScramArgumentError(f"The add-scram mechanism {name} is not supported.")
    if not config.startswith("["):
        raise ScramArgumentError("Expected configuration string to start with [")
    if not config.endswith("]"):
        raise ScramArgumentError("Expected configuration string to end with ]")
    parts = {}
    for part in config[1:-1].rstrip(",").split(","):
        key, equals, value = part.partition("=")
        if not equals:
            raise ScramArgumentError("No equals sign found in SCRAM component")
        parts[key] = value[1:-1] if len(value) >= 2 and value[0] == value[-1] == '"' else value
    return BY_NAME[name], parts


def _parse_iterations(mechanism: ScramMechanism, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ScramArgumentError("Failed to parse iterations count")
    if int(text) < MIN_ITERATIONS:
        raise ScramArgumentError(
            f"The 'iterations' value must be >= {MIN_ITERATIONS} for add-scram using {mechanism.text}"
        )
    if int(text) > MAX_ITERATIONS:
        raise ScramArgumentError(
            f"The 'iterations' value must be <= {MAX_ITERATIONS} for add-scram using {mechanism.text}"
        )
    return int(text)


def _decode_base64(name: str, text: str) -> bytes:
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramArgumentError(f"Failed to decode given {name}") from None
    if not decoded:
        raise ScramArgumentError(f"The given {name} is empty")
    return decoded
