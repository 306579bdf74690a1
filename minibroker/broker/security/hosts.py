"""Hosts in ACLs: an address, "*", or a range of addresses (KIP-1276).

`ipaddress` is imported where it is needed, as it would slow the start by milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

ANY_HOST = "*"


def address_range(text: str) -> IPv4Network | IPv6Network:
    """Return the range of addresses for a text such as 10.1.0.0/16. Raises ValueError."""
    from ipaddress import ip_network

    _, _, bits = text.partition("/")
    if not (bits.isascii() and bits.isdecimal()):
        raise ValueError(f"{bits!r} is no number of bits")
    return ip_network(text, strict=False)


def lies_in(host: str, addresses: IPv4Network | IPv6Network) -> bool:
    """Return whether a range contains the address. A range of IPv6 addresses contains no IPv4 address."""
    from ipaddress import ip_address

    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.version == addresses.version and address in addresses
