"""The addresses of this machine's network interfaces."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path
from typing import Final

from distxla.errors import ClusterError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_SIOCGIFADDR: Final = 0x8915
_REQUEST = struct.Struct("16s2xH4s16x")  # struct ifreq with a sockaddr_in
_LINK: Final = 0x20  # scope of an address that only its link knows, as /proc/net/if_inet6 has it


def addresses() -> list[tuple[str, Address]]:
    """(interface, address) of each interface; of IPv6 those that other links know."""
    found: list[tuple[str, Address]] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, _REQUEST.pack(name.encode(), 0, bytes(4)))
            except OSError:  # it has none of IPv4
                continue
            found.append((name, ipaddress.IPv4Address(answer[20:24])))
    try:
        rows = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:  # no IPv6
        rows = []
    for row in rows:
        digits, _, _, scope, _, name = row.split()
        if int(scope, 16) != _LINK:
            found.append((name, ipaddress.IPv6Address(bytes.fromhex(digits))))
    return found


def address_on(interface: str) -> str:
    """This machine's address on an interface, by its name or by a network that it is in: `eth1`, `10.1.0.0/16`. An
    IPv4 address where there is one.

    ClusterError where there is none.
    """
    there = addresses()
    try:
        network = ipaddress.ip_network(interface, strict=False)
    except ValueError:
        matching = [address for name, address in there if name == interface]
    else:
        matching = [address for _, address in there if address in network]
    if not matching:
        known = ", ".join(f"{name} {address}" for name, address in there) or "none"
        where = f"no interface of {socket.gethostname()} is {interface}, or in that network"
        raise ClusterError(f"{where}; there are {known}")
    return str(min(matching, key=lambda address: address.version))


__all__ = ["Address", "address_on", "addresses"]
