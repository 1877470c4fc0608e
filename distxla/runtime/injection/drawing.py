"""Faults at random, the same for a seed whenever the same programs run on the same devices."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from distxla.codegen.program import InjectionPoint
from distxla.runtime.injection.faults import Fault, Kind, When
from distxla.runtime.injection.grammar import parse_faults, spelled

LONGEST_MS = {Kind.STOP: 500, Kind.DELAY: 100, Kind.SLOW: 5}
SHORTEST_MS = {Kind.STOP: 50, Kind.DELAY: 1, Kind.SLOW: 1}


def draw(fault: Fault, points: Sequence[tuple[int, Sequence[InjectionPoint]]]) -> Iterator[Fault]:
    """The faults that a random one stands for. points: of the program that each device runs."""
    stream = random.Random(fault.seed)
    places = {
        device: names
        for device, mine in sorted(points, key=lambda pair: pair[0])
        if (names := list(dict.fromkeys(point.names[0] for point in mine if point.communicates)))
    }
    for _ in range(fault.count if places else 0):
        kind = stream.choice(fault.kinds)
        device = stream.choice(list(places))
        values: dict[str, object] = {
            "device": device,
            "at": stream.choice(places[device]),
            "round": stream.randint(1, fault.rounds),
            "when": stream.choice([*When]),
        }
        if kind in LONGEST_MS:
            values["ms"] = stream.randint(SHORTEST_MS[kind], LONGEST_MS[kind])
        (drawn,) = parse_faults([spelled(kind, **values)], device + 1)
        yield replace(drawn, places=fault.places)


__all__ = ["draw"]
