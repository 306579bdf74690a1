"""Cipher suites: from Java's names, which are IANA's, to OpenSSL's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

NEWER: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")  # of TLS 1.3
SIGNALLING = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"  # Java lists it among the suites; OpenSSL sends it by itself
OLDER: Final = re.compile(
    r"TLS_(?P<exchange>RSA|DHE_RSA|ECDHE_(?:RSA|ECDSA))_WITH_"
    r"(?:AES_(?P<bits>128|256)_(?P<mode>GCM|CBC)_(?P<hash>SHA(?:256|384)?)|(?P<chacha>CHACHA20_POLY1305_SHA256))"
)


def split_suites(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the suites of TLS 1.2 by OpenSSL's names, and those of TLS 1.3.

    Raises ValueError for unknown suites. Also raise it if only some suites of TLS 1.3 are listed, as the `ssl` module
    cannot choose among them.
    """
    older, newer = [], []
    for name in names:
        if name in NEWER:
            newer.append(name)
        elif name != SIGNALLING:
            older.append(_openssl_name(name))
    if newer and len(newer) < len(NEWER):
        raise ValueError(f"of TLSv1.3, either all suites are offered or none: {', '.join(NEWER)}")
    return older, newer


def _openssl_name(name: str) -> str:
    match = OLDER.fullmatch(name)
    if match is None:
        raise ValueError(f"{name} is not known here")
    exchange = "" if match["exchange"] == "RSA" else match["exchange"].replace("_", "-") + "-"
    if match["chacha"]:
        return f"{exchange}CHACHA20-POLY1305"
    mode = "GCM-" if match["mode"] == "GCM" else ""
    return f"{exchange}AES{match['bits']}-{mode}{match['hash']}"
