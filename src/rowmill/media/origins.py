"""A path or URL of a row -> whether it may be read at all, decided on its text alone.

Promises: without a folder no path passes, without hosts no URL; no other scheme than http and https does.
Knows nothing of: disks, networks.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PORTS = {"http": 80, "https": 443}
_LONG = 256
"""So many characters without a slash or dot are no path that somebody meant."""


def scheme_of(text: str) -> str:
    """What stands before the colon, in lower case; empty for a path."""
    found = _SCHEME.match(text[:40])
    return found.group()[:-1].lower() if found else ""


def path_mistake(path: str, folder: str) -> str:
    """Why a path may not be read; empty where it may."""
    if len(path) > _LONG and "." not in path:
        return "a long text without a scheme; if it is base64, put `data:image/png;base64,` before it"
    if not folder:
        return "a path, and this job reads none; set `media.folder` to the folder that paths begin from"
    if "\0" in path or not path.strip():
        return "no path"
    return ""


def url_mistake(url: str, hosts: Sequence[str]) -> str:
    """Why a URL may not be asked; empty where it may, as far as its text says."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return "a URL that cannot be read"
    if parts.scheme not in _PORTS:
        return f"a URL of scheme `{parts.scheme[:20]}`, expected `https`, `http` or `data`"
    if not host or not url.isascii() or not url.isprintable() or " " in url:
        return "a URL that cannot be read"
    if parts.username is not None or parts.password is not None:
        return "a URL with a user or a password in it"
    if not hosts:
        return "a URL, and this job reads none; name its host in `media.hosts`"
    if not any(_matches(host, port, parts, entry) for entry in hosts):
        return f"a URL of host `{host[:80]}`, which is not in `media.hosts`"
    return ""


def _matches(host: str, port: int, parts: SplitResult, entry: str) -> bool:
    name, entry_port = _split(entry)
    if port != (entry_port or _PORTS[parts.scheme]):
        return False
    if name.startswith("*."):
        return host.endswith(name[1:]) and address_of(host) is None
    return host == name


def _split(entry: str) -> tuple[str, int]:
    found = urlsplit(f"//{entry}")
    return found.hostname or "", found.port or 0


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is written as; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


_TUNNELS = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16")))
"""Addresses that hold another one, which a gateway would ask."""


def is_public(text: str) -> bool:
    """Whether an address is one that anybody on the internet may ask."""
    address = ipaddress.ip_address(text.partition("%")[0])
    inner = getattr(address, "ipv4_mapped", None)
    if inner is not None:
        address = inner
    if any(address in network for network in _TUNNELS if network.version == address.version):
        return False
    return address.is_global and not address.is_multicast
