"""The report of a comparison, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from distxla.differ.alignment import CONSTANT, ArrayPair
from distxla.differ.ancestry import line_of
from distxla.differ.recording import Recorded
from distxla.lazy_dataclass import dataclass, field

FORMAT = 1
MOST_LINES = 12
NO_TWIN = "no twin"


@dataclass(frozen=True)
class FirstDifference:
    """Where the values go wrong.

    instruction: of the sharded program.  op_name, source: its metadata; source is `file.py:12`, the line at which to
    look, None where the program names no lines.  iteration: of the innermost loop around it, from 0, None outside.
    devices: on which it differs.  sharded, unsharded: type, shape and one of the values that differ.  kind: in a few
    words.  hint: what the numbers say, and what to change.  use: the instruction that takes the value for something
    else, and its line, where there is one.
    """

    instruction: str
    op_name: str
    source: str | None
    iteration: int | None
    devices: tuple[int, ...]
    sharded: str
    unsharded: str | None
    kind: str
    hint: str
    use: str | None = None
    use_source: str | None = None

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from distxla.differ.report_html import fragment_of_first

        return fragment_of_first(self.as_json())

    def as_json(self) -> dict[str, Any]:
        return {
            "instruction": self.instruction,
            "op_name": self.op_name,
            "source": self.source,
            "iteration": self.iteration,
            "devices": list(self.devices),
            "sharded": self.sharded,
            "unsharded": self.unsharded,
            "kind": self.kind,
            "hint": self.hint,
            "use": self.use,
            "use_source": self.use_source,
        }


@dataclass(frozen=True)
class ValueRelation:
    """An instruction of the sharded program, its twin, and what its values are to the twin's: in words."""

    instruction: str
    twin: str | None
    source: str | None
    relation: str


@dataclass(frozen=True)
class Comparison:
    """same: whether all results are the unsharded ones, within what rounding does.

    first: where values go wrong, None where all results are the same.  results: a sentence for each result that
    differs.  relations: of all values, one entry an instruction.  proof: "… equal for all inputs, up to …", where that
    is proved from the programs; None where it isn't, or nothing was asked for.  compared: whether values of a run were
    compared; where that is False, the relations are those that are proved.
    """

    same: bool
    first: FirstDifference | None
    results: tuple[str, ...]
    relations: tuple[ValueRelation, ...] = field(repr=False)
    proof: str | None = None
    compared: bool = True

    def as_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "same": self.same,
            "first": None if self.first is None else self.first.as_json(),
            "results": list(self.results),
            "relations": [
                {"instruction": r.instruction, "twin": r.twin, "source": r.source, "relation": r.relation}
                for r in self.relations
            ],
            **({} if self.proof is None else {"proof": self.proof, "compared": self.compared}),
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def page(self, command: str = "") -> str:
        """One self-contained HTML page. command: the one that has compared, to be told there; "" for none."""
        from distxla.differ.report_html import page

        return page(self.as_json(), command)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from distxla.differ.report_html import fragment

        return fragment(self.as_json())

    def _lines(self) -> Iterator[str]:
        if self.same and self.compared:
            yield f"the same: {len(self.relations)} instructions compared" + (f"; {self.proof}" if self.proof else "")
            return
        if self.same:
            yield f"the same: {self.proof}; proved, nothing was run"
            return
        yield from self.results[:MOST_LINES]
        if len(self.results) > MOST_LINES:
            yield f"… ({len(self.results)} in all)"
        if self.proof:
            yield f"{self.proof}: what differs is rounding, overflow, or what is not finite"
        first = self.first
        if first is None:
            return
        at = f" at {first.source}" if first.source else ""
        loop = "" if first.iteration is None else f", iteration {first.iteration}"
        yield f"first difference: {first.kind}{at}: {first.instruction}{loop}"
        yield f"  sharded    {first.sharded}"
        if first.unsharded is not None:
            yield f"  unsharded  {first.unsharded}"
        yield f"  hint: {first.hint}"


def first_difference(pair: ArrayPair, kind: str, line: str | None, hint: str, use: ArrayPair | None) -> FirstDifference:
    array, twin = pair.array, pair.twin
    metadata = array.instruction.metadata
    devices, sharded, unsharded = _shown(array, twin)
    return FirstDifference(
        array.instruction.name if array.argument is None else f"arg{array.argument}",
        "" if metadata is None else metadata.op_name,
        line,
        array.iterations[-1] if array.iterations else None,
        devices,
        sharded,
        unsharded,
        kind,
        hint,
        None if use is None else use.array.instruction.name,
        None if use is None else line_of(use.array),
    )


def value_relations(pairs: list[ArrayPair]) -> tuple[ValueRelation, ...]:
    """One an instruction: the first execution whose values have no relation, else the first one."""
    found: dict[tuple[int, int], ArrayPair] = {}
    for pair in pairs:
        key = id(pair.array.instruction), pair.array.leaf
        known = found.setdefault(key, pair)
        if known.relation is not None and pair.relation is None:
            found[key] = pair
    return tuple(
        ValueRelation(
            pair.array.instruction.name,
            None if pair.twin is None or pair.relation is CONSTANT else pair.twin.instruction.name,
            line_of(pair.array),
            pair.relation.text if pair.relation is not None else "none" if pair.twin is not None else NO_TWIN,
        )
        for pair in found.values()
    )


def _shown(array: Recorded, twin: Recorded | None) -> tuple[tuple[int, ...], str, str | None]:
    """The devices that differ, and both values at one place."""
    devices = tuple(sorted(array.values))
    if twin is None:
        return devices, _value(array.on(devices[0]), None, devices[0]), None
    whole = twin.on(min(twin.values))
    if whole.shape != array.dims or whole.dtype != array.dtype:
        return devices, _value(array.on(devices[0]), None, devices[0]), _value(whole, None, None)
    differing = tuple(d for d in devices if array.on(d).tobytes() != whole.tobytes())
    device = differing[0] if differing else devices[0]
    value = array.on(device)
    with np.errstate(all="ignore"):
        a, b = value.astype(np.complex128), whole.astype(np.complex128)
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, np.abs(a - b))  # equal infinities, too
    place = np.unravel_index(int(np.argmax(np.nan_to_num(apart, nan=np.inf))), value.shape) if value.size else None
    return differing or devices, _value(value, place, device), _value(whole, place, None)


def _value(value: Any, place: Any, device: int | None) -> str:
    at = tuple(0 for _ in value.shape) if place is None else tuple(int(i) for i in place)
    shape = f"{value.dtype}{list(value.shape)}"
    where = f" at {list(at)}" if at else ""
    on = "" if device is None else f" on device {device}"
    return f"{shape}: {value[at]}{where}{on}" if value.size else f"{shape}: no elements"


__all__ = ["NO_TWIN", "Comparison", "FirstDifference", "ValueRelation", "first_difference", "value_relations"]
