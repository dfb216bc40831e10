"""Names of hosts, as headers and origins spell them."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_loopback(name: str) -> bool:
    """Whether a host name or address means this machine."""
    return name == "localhost" or (is_address(name) and ipaddress.ip_address(name).is_loopback)


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def hostname(place: str) -> str | None:
    """The name in `name:port`, lower case; None where that is not what it is."""
    try:
        parts = urlsplit(f"//{place}")
        _ = parts.port
    except ValueError:
        return None
    plain = not (parts.path or parts.query or parts.fragment or "@" in parts.netloc or "\\" in place)
    return parts.hostname.rstrip(".") if plain and parts.hostname else None
