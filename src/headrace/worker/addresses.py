"""Which addresses outgoing HTTP may reach: public ones, and what the operator allowed.

The check is on addresses that a name was resolved to, just before the connection, so that no spelling of a host can get
around it. The tables are our own (from the IANA registries of special-purpose addresses): what Python's `is_global`
says differs between its versions, and it counts multicast, site-local and 6to4 as global. An address that carries an
IPv4 address never gets a better verdict than that one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from headrace.errors import HeadraceError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

NOT_PUBLIC_IPV4 = {
    IPv4Network("0.0.0.0/8"): "an address of this machine",
    IPv4Network("10.0.0.0/8"): "a private address",
    IPv4Network("100.64.0.0/10"): "a shared (carrier-grade NAT) address",
    IPv4Network("127.0.0.0/8"): "a loopback address",
    IPv4Network("168.63.129.16/32"): "a cloud platform address",
    IPv4Network("169.254.0.0/16"): "a link-local (cloud metadata) address",
    IPv4Network("172.16.0.0/12"): "a private address",
    IPv4Network("192.0.0.0/24"): "a reserved address",
    IPv4Network("192.0.2.0/24"): "a documentation address",
    IPv4Network("192.88.99.0/24"): "a 6to4 relay address",
    IPv4Network("192.168.0.0/16"): "a private address",
    IPv4Network("198.18.0.0/15"): "a benchmark address",
    IPv4Network("198.51.100.0/24"): "a documentation address",
    IPv4Network("203.0.113.0/24"): "a documentation address",
    IPv4Network("224.0.0.0/4"): "a multicast address",
    IPv4Network("240.0.0.0/4"): "a reserved address",
}
# Of IPv6 only 2000::/3 is public, without the second part of this table; the first part is there for its words.
PUBLIC_IPV6 = IPv6Network("2000::/3")
NOT_PUBLIC_IPV6 = {
    IPv6Network("::1/128"): "a loopback address",
    IPv6Network("::/96"): "an address of this machine",  # and, long ago, IPv4-compatible ones
    IPv6Network("64:ff9b:1::/48"): "a local NAT64 address",
    IPv6Network("fc00::/7"): "a private (unique local) address",
    IPv6Network("fe80::/10"): "a link-local address",
    IPv6Network("fec0::/10"): "a private (site-local) address",
    IPv6Network("ff00::/8"): "a multicast address",
    IPv6Network("2001::/32"): "a Teredo address",
    IPv6Network("2001::/23"): "a reserved address",
    IPv6Network("2001:db8::/32"): "a documentation address",
    IPv6Network("2002::/16"): "a 6to4 address",
    IPv6Network("3fff::/20"): "a documentation address",
}
# Packets to these go to the IPv4 address in the last 32 bits, so that one is checked: the operating system does it for
# the mapped ones, and a network without IPv4 (NAT64 with DNS64) for the others.
CARRIES_IPV4 = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
ISATAP = (0x00005EFE, 0x02005EFE)

HOST_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*", re.ASCII)


def plain(address: Address) -> Address:
    """The IPv4 address that packets for this one will reach, where that is certain; else the address itself."""
    if isinstance(address, IPv6Address) and any(address in network for network in CARRIES_IPV4):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def not_public(address: Address) -> str | None:
    """What kind of address this is if it is not a public one."""
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return "an address of a local network"
    address = plain(address)
    if isinstance(address, IPv4Address):
        return next((kind for network, kind in NOT_PUBLIC_IPV4.items() if address in network), None)
    if (int(address) >> 32) & 0xFFFFFFFF in ISATAP:
        return "an ISATAP address"
    kind = next((kind for network, kind in NOT_PUBLIC_IPV6.items() if address in network), None)
    return kind or (None if address in PUBLIC_IPV6 else "a reserved address")


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of HTTP_ALLOWED_HOSTS: a block of addresses, or a name, `.suffix` for all names below it."""

    block: Network | None
    name: str
    port: int | None

    def covers(self, host: str, port: int, address: Address) -> bool:
        if self.port not in (None, port):
            return False
        if self.block is not None:
            return plain(address) in self.block or address in self.block
        return host.endswith(self.name) if self.name.startswith(".") else host == self.name


class Reachable:
    """The rule of one HTTP client: public addresses, and those of its own entries, or all of them."""

    def __init__(self, *, allow_private: bool = False, allowed_hosts: Iterable[str] = ()) -> None:
        self._allow_private = allow_private
        self._entries = [_entry(text) for text in allowed_hosts]

    def refusal(self, host: str, port: int, addresses: Iterable[Address]) -> str | None:
        """Why this host may not be connected to, and what to do. One bad address among good ones is enough."""
        host = host.lower().removesuffix(".")
        for address in addresses:
            kind = not_public(address)
            if kind and not self._allow_private and not any(each.covers(host, port, address) for each in self._entries):
                named = f"[{host}]" if ":" in host else host
                verb = "is" if _literal(host) else "leads to"
                return f"{host} {verb} {kind}: to allow it, set HTTP_ALLOWED_HOSTS={named}:{port} on the worker"
        return None


def _entry(text: str) -> _Entry:
    rest, port = _split_port(text)
    if "%" in rest:
        raise HeadraceError(_complaint(text, "it names an interface"))
    try:
        return _Entry(ip_network(rest), "", port)
    except ValueError as error:
        if "/" in rest or ":" in rest:
            raise HeadraceError(_complaint(text, str(error))) from None
    name = _ascii(rest.removeprefix("*.")).lower().removesuffix(".")
    if not HOST_NAME.fullmatch(name):
        raise HeadraceError(_complaint(text, "it is not a host name"))
    return _Entry(None, f".{name}" if rest.startswith("*.") else name, port)


def _split_port(text: str) -> tuple[str, int | None]:
    """An IPv6 address has a port only when it stands in brackets."""
    match = re.fullmatch(r"(?:\[(?P<v6>[^]]*)\]|(?P<host>[^:]*))(?::(?P<port>[0-9]{1,5}))?", text, re.ASCII)
    if match is None:
        return text, None
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 1 <= port <= 65535:
        raise HeadraceError(_complaint(text, "its port must be between 1 and 65535"))
    return match["v6"] if match["v6"] is not None else match["host"], port


def _ascii(name: str) -> str:
    if name.isascii():
        return name
    import idna  # as the URL parser does

    try:
        return idna.encode(name.lower()).decode()
    except idna.IDNAError:
        return ""


def _complaint(text: str, why: str) -> str:
    return (
        f"HTTP_ALLOWED_HOSTS: {text!r} cannot be used ({why}): give a host, host:port, *.suffix, an address or a block "
        "such as 10.0.0.0/8"
    )


def _literal(host: str) -> bool:
    try:
        return bool(ip_address(host))
    except ValueError:
        return False
