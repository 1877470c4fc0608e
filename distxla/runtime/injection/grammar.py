"""Reads `kill:device=3,at=all-reduce.7,round=2`: a kind, and keys with values.

`KINDS` and `KEYS` hold the grammar; docs/guide/fault_injection.md has the same tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from distxla.errors import ArgumentError
from distxla.lazy_dataclass import dataclass
from distxla.location import Location
from distxla.runtime.injection.faults import BETWEEN_HOSTS, IN_A_PROGRAM, Fault, Kind, When
from distxla.similar_words import did_you_mean, nearest

LONGEST_MS = 3_600_000
MOST_FAULTS = 64  # of one device (the bits of R_INJECTED), and of one random fault


@dataclass(frozen=True)
class Key:
    """The values that a key takes. field: of Fault.  says: in words, for errors.  read: ValueError for other values."""

    field: str
    says: str
    read: Callable[[str], Any]


def _integer(least: int, most: int = 2**63 - 1) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"\d+", text, re.ASCII) or not least <= int(text) <= most:
            raise ValueError
        return int(text)

    return read


def _milliseconds(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", text, re.ASCII) or not 0 < float(text) <= LONGEST_MS:
        raise ValueError
    return float(text)


def _instruction(text: str) -> str:
    if not text.removeprefix("%"):
        raise ValueError
    return text.removeprefix("%")


def _kinds(text: str) -> tuple[Kind, ...]:
    return tuple(dict.fromkeys(MAY_BE_DRAWN[MAY_BE_DRAWN.index(Kind(name))] for name in text.split("+")))


DRAWN = (Kind.KILL, Kind.STOP, Kind.DELAY, Kind.SLOW)  # kinds of random faults, unless `kinds` names others
MAY_BE_DRAWN = (*DRAWN, *BETWEEN_HOSTS)
KEYS = {
    "device": Key("device", "a device's number", _integer(0)),
    "host": Key("host", "a host's number, from 1: host 0 is the driver's", _integer(1)),
    "from": Key("source", "a host's number", _integer(0)),
    "to": Key("target", "a host's number", _integer(0)),
    "message": Key("message", "a number from 1", _integer(1)),
    "at": Key("at", "the name of an instruction", _instruction),
    "round": Key("round", "a number from 1", _integer(1)),
    "when": Key("when", "before, waiting or after", When),
    "ms": Key("ms", f"milliseconds, up to {LONGEST_MS}", _milliseconds),
    "after": Key("after", "a number of items", _integer(0)),
    "seed": Key("seed", "a number", _integer(0)),
    "faults": Key("count", f"a number from 1 to {MOST_FAULTS}", _integer(1, MOST_FAULTS)),
    "kinds": Key("kinds", f"some of {', '.join(MAY_BE_DRAWN)}, joined by +", _kinds),
    "rounds": Key("rounds", "a number from 1", _integer(1)),
}
_PLACE = ("at", "round", "when")
_MESSAGE = ("to", "at", "round", "message")
KINDS: dict[Kind, tuple[tuple[str, ...], tuple[str, ...]]] = {  # keys that it must have, and that it may have
    Kind.KILL: (("device",), _PLACE),
    Kind.STOP: (("device",), (*_PLACE, "ms")),
    Kind.DELAY: (("device", "ms"), _PLACE),
    Kind.SLOW: (("device", "ms"), _PLACE),
    Kind.HOST_LOST: (("host",), _PLACE),
    Kind.FEED_ENDS: (("device", "after"), ()),
    Kind.DROP: (("from",), _MESSAGE),
    Kind.DUPLICATE: (("from",), _MESSAGE),
    Kind.CORRUPT: (("from",), _MESSAGE),
    Kind.LATE: (("from", "ms"), _MESSAGE),
    Kind.CUT: (("from",), _MESSAGE),
    Kind.RANDOM: (("seed",), ("faults", "kinds", "rounds")),
}
_DEFAULTS: dict[Kind, dict[str, Any]] = {Kind.RANDOM: {"kinds": DRAWN, "rounds": 4}}


def parse_faults(specs: Iterable[str], devices: int, origin: str = "inject") -> tuple[Fault, ...]:
    """The faults of these specs for a run of `devices` devices.

    origin: the file name in errors.  Raises ArgumentError with the place in the spec.
    """
    if isinstance(specs, str):
        specs = [specs]
    found = []
    for spec in specs:
        if not isinstance(spec, str):
            raise ArgumentError(f"{origin}: expected texts such as 'kill:device=3', found {spec!r}")
        fault = _parse(spec, origin)
        if fault.device >= devices:
            refuse(fault, "device", f"device {fault.device}: the run has devices 0 to {devices - 1}")
        found.append(fault)
    for device in {fault.device for fault in found if fault.device >= 0}:
        mine = [fault for fault in found if fault.device == device and fault.kind in IN_A_PROGRAM]
        if len(mine) > MOST_FAULTS:
            refuse(mine[-1], "device", f"device {device} has more than {MOST_FAULTS} faults")
    return tuple(found)


def refuse(fault: Fault, key: str, message: str, candidates: Iterable[str] = (), hint: str = "") -> NoReturn:
    """Raise ArgumentError at the value of a key. candidates: a similar one is proposed."""
    raise _error(message, fault.places.get(key), _text_at(fault.places.get(key)), candidates, hint)


def _parse(spec: str, origin: str) -> Fault:
    name, colon, rest = spec.partition(":")
    if name not in [*Kind]:
        message = f"no fault is called {name!r}; there are {', '.join(Kind)}"
        raise _error(message, _place(origin, spec, 0, len(name)), name, Kind)
    kind = Kind(name)
    required, optional = KINDS[kind]
    values: dict[str, Any] = {}
    places: dict[str, Location] = {"": _place(origin, spec, 0, len(name))}
    at = len(name) + len(colon)
    for part in rest.split(",") if rest else ():
        key, value, place = _pair(part, at, spec, origin, kind, (*required, *optional))
        if key in places:
            raise _error(f"{key} is given twice", _place(origin, spec, at, at + len(key)))
        values[KEYS[key].field], places[key] = value, place
        at += len(part) + 1
    if missing := [key for key in required if key not in places]:
        says = " and ".join(f"{key}= ({KEYS[key].says})" for key in missing)
        raise _error(f"{kind} needs {says}", _place(origin, spec, len(spec), len(spec) + 1))
    return Fault(kind, spec, **(_DEFAULTS.get(kind, {}) | values), places=places)


def _pair(part: str, at: int, spec: str, origin: str, kind: Kind, keys: Sequence[str]) -> tuple[str, Any, Location]:
    """(key, value, location of the value) of `key=value` at offset `at` of the spec."""
    key, equals, text = part.partition("=")
    where = _place(origin, spec, at, at + len(key))
    if key not in keys:
        what = f"{kind} has no {key!r}" if key else "a key is missing"
        raise _error(f"{what}; it takes {', '.join(f'{name}=' for name in keys)}", where, key, keys)
    if not equals:
        raise _error(f"{key} needs a value: {key}= and {KEYS[key].says}", _place(origin, spec, at, at + len(part)))
    place = _place(origin, spec, at + len(key) + 1, at + len(part))
    try:
        return key, KEYS[key].read(text), place
    except ValueError:
        words = {"when": [*When], "kinds": [*MAY_BE_DRAWN]}.get(key, [])
        message = f"{key}: expected {KEYS[key].says}, found {text!r}" if text else f"{key}: expected {KEYS[key].says}"
        raise _error(message, place, text, words) from None


def _place(origin: str, spec: str, begin: int, end: int) -> Location:
    return Location(origin, 1, begin + 1, max(end, begin + 1) + 1, spec)


def _text_at(place: Location | None) -> str:
    return "" if place is None else place.text[place.column - 1 : place.end_column - 1]


def _error(
    message: str, place: Location | None, word: str = "", candidates: Iterable[str] = (), hint: str = ""
) -> ArgumentError:
    error = ArgumentError(message, place)
    near = nearest(word, candidates) if word else None
    if near is not None:
        error.add_note(did_you_mean(near))
    if hint:
        error.add_note(f"hint: {hint}")
    return error


def spelled(kind: Kind, values: Mapping[str, object]) -> str:
    """The spec of a fault with these values of keys."""
    pairs = ",".join(f"{key}={_number(value)}" for key, value in values.items())
    return f"{kind}:{pairs}"


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) and math.isfinite(value) else str(value)


__all__ = ["DRAWN", "KEYS", "KINDS", "parse_faults", "refuse", "spelled"]
