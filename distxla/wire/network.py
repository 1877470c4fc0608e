"""How hosts reach each other: `ports=40000-40199,interface=10.1.0.0/16,lost-after=10`."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Final

from distxla.errors import ArgumentError
from distxla.lazy_dataclass import dataclass

ANSWER_S: Final = 3.5  # until the loss of a host is told, where it is to be told soon
VARIABLE: Final = "DISTXLA_NETWORK"
LONGEST_S: Final = 3600.0
_KEYS: Final = ("ports", "interface", "lost-after")


@dataclass(frozen=True)
class Network:
    """ports: first and last of those that hosts listen on; None for any free one.  interface: its name, or a network in
    which every host has one address; "" for the address by which Ray reaches a host.  lost_after: seconds in which
    the kernel of a host acknowledges what it is sent; longer, and the host is lost."""

    ports: tuple[int, int] | None = None
    interface: str = ""
    lost_after: float = ANSWER_S

    def each_port(self) -> Iterator[int]:
        """Those to try, in an order of chance: several runs share a range. 0 for any."""
        if self.ports is None:
            yield 0
            return
        first, last = self.ports
        begin = random.SystemRandom().randint(first, last)  # Python's other numbers are the user's
        yield from range(begin, last + 1)
        yield from range(first, begin)

    @property
    def said_ports(self) -> str:
        """`40000-40199`, `any port`."""
        return "any port" if self.ports is None else f"{self.ports[0]}-{self.ports[1]}"


def network_of(given: str | None, option: str = "network") -> Network:
    """From a text, or without one from the variable DISTXLA_NETWORK. option: as the user calls it.

    ArgumentError for a text that says nothing of the kind.
    """
    if given is None:
        option, given = VARIABLE, os.environ.get(VARIABLE, "")
    if not isinstance(given, str):
        raise ArgumentError(f"{option}: expected a text such as ports=40000-40199,lost-after=10, found {given!r}")
    found: dict[str, str] = {}
    for part in filter(None, given.split(",")):
        key, equals, value = part.partition("=")
        if key not in _KEYS or not equals or not value:
            raise ArgumentError(f"{option}: expected {', '.join(f'{k}=…' for k in _KEYS)}, found {part!r}")
        if key in found:
            raise ArgumentError(f"{option}: {key} is given twice")
        found[key] = value
    return Network(
        _ports(option, found["ports"]) if "ports" in found else None,
        found.get("interface", ""),
        _seconds(option, found["lost-after"]) if "lost-after" in found else ANSWER_S,
    )


def _ports(option: str, text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    try:
        found = int(first), int(last if dash else first)
    except ValueError:
        found = 0, 0
    if not 1 <= found[0] <= found[1] <= 65535:
        raise ArgumentError(f"{option}: ports: expected FIRST-LAST within 1 to 65535, found {text!r}")
    return found


def _seconds(option: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 1 <= found <= LONGEST_S:
        raise ArgumentError(f"{option}: lost-after: expected seconds, 1 to {LONGEST_S:g}, found {text!r}")
    return found


__all__ = ["ANSWER_S", "LONGEST_S", "VARIABLE", "Network", "network_of"]
