"""Hosts in ACLs: the text of an address, anything, or a range of addresses (KIP-1276).

`ipaddress` is imported where it is needed: a start takes milliseconds longer for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

ANY_HOST = "*"


def address_range(text: str) -> IPv4Network | IPv6Network:
    """Return the range of addresses that a text such as 10.1.0.0/16 stands for. Raise ValueError."""
    from ipaddress import ip_network

    _, _, bits = text.partition("/")
    if not (bits.isascii() and bits.isdecimal()):
        raise ValueError(f"{bits!r} is no number of bits")
    return ip_network(text, strict=False)


def lies_in(host: str, addresses: IPv4Network | IPv6Network) -> bool:
    """Return whether the address is one of the range; an IPv4 address is in no range of IPv6 addresses."""
    from ipaddress import ip_address

    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.version == addresses.version and address in addresses
