"""Faults at random, the same for a seed whenever the same programs run on the same devices."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from distxla.collectives.protocols.control_block import MOST_DEVICES
from distxla.program.artifact import InjectionPoint
from distxla.runtime.injection.faults import BETWEEN_HOSTS, Fault, Kind, When
from distxla.runtime.injection.grammar import parse_faults, spelled

LONGEST_MS = {Kind.STOP: 500, Kind.DELAY: 100, Kind.SLOW: 5, Kind.LATE: 500}
SHORTEST_MS = {Kind.STOP: 50, Kind.DELAY: 1, Kind.SLOW: 1, Kind.LATE: 1}


def _streams(fault: Fault) -> Iterator[tuple[random.Random, Kind]]:
    """(random generator, kind) of each fault to draw."""
    for number in range(fault.count):
        stream = random.Random(f"{fault.seed}/{number}")
        yield stream, stream.choice(fault.kinds)


def draw_between_hosts(fault: Fault, hosts: int) -> Iterator[Fault]:
    """The faults between hosts that a random fault draws."""
    for stream, kind in _streams(fault):
        if kind not in BETWEEN_HOSTS:
            continue
        source, target = stream.sample(range(hosts), 2)
        values: dict[str, object] = {"from": source, "to": target, "round": stream.randint(1, fault.rounds)}
        if kind is Kind.LATE:
            values["ms"] = stream.randint(SHORTEST_MS[kind], LONGEST_MS[kind])
        yield _drawn(fault, kind, values)


def draw(fault: Fault, points: Sequence[tuple[int, Sequence[InjectionPoint]]]) -> Iterator[Fault]:
    """The faults of devices that a random fault draws. points: (device, points of the program that it runs)."""
    places = {
        device: names
        for device, mine in sorted(points, key=lambda pair: pair[0])
        if (names := list(dict.fromkeys(point.names[0] for point in mine if point.communicates)))
    }
    for stream, kind in _streams(fault):
        if kind in BETWEEN_HOSTS or not places:
            continue
        device = stream.choice(list(places))
        values: dict[str, object] = {
            "device": device,
            "at": stream.choice(places[device]),
            "round": stream.randint(1, fault.rounds),
            "when": stream.choice([*When]),
        }
        if kind in LONGEST_MS:
            values["ms"] = stream.randint(SHORTEST_MS[kind], LONGEST_MS[kind])
        yield _drawn(fault, kind, values)


def _drawn(fault: Fault, kind: Kind, values: dict[str, object]) -> Fault:
    (drawn,) = parse_faults([spelled(kind, values)], MOST_DEVICES)
    return replace(drawn, places=fault.places)


__all__ = ["draw", "draw_between_hosts"]
