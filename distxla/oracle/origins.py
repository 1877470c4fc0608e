"""Where NaN and Inf of a run of the reference come from: of each array the instruction that made the first.

An array has the origin of an operand that has one; else its own instruction is the origin. Arrays are told apart by
their identity, which tuples, loops and calls keep. Constants and parameters are origins, too, of values that no
instruction made.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from distxla.errors import NonFiniteError
from distxla.ir.element_type import element_type_of
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.lazy_dataclass import dataclass, replace
from distxla.ops.support.registry import op_class
from distxla.wording import named

Array = np.ndarray[Any, Any]
KINDS = ("NaN", "Inf")


@dataclass(frozen=True)
class Origin:
    """is_given: a constant or a parameter.  serial: earlier ones have less.  loops: name and iteration, outermost
    first.  cause: where the Inf of a NaN's operands comes from."""

    name: str
    opcode: str
    is_given: bool
    device: int = 0
    serial: int = 0
    loops: tuple[tuple[str, int], ...] = ()
    module: Module | None = None
    instruction: Instruction | None = None
    cause: Origin | None = None


class Origins:
    """Of all devices of a run; `evaluation.call` tells it of every instruction."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Array], dict[str, Origin]]] = {}
        self._sent: dict[tuple[str, str], Origin] = {}  # by instruction and kind: what a device gave to the others
        self._serial = 0

    def of(self, array: Any, kind: str) -> Origin | None:
        """Where the array's NaN or Inf comes from; None where it has none."""
        return self._all(array).get(kind)

    def given(self, device: int, arguments: Sequence[Any]) -> None:
        """The entry's arguments, by parameter."""
        for number, argument in enumerate(_leaf for value in arguments for _leaf in _arrays(value)):
            found = {kind: self._made(f"arg{number}", "parameter", True, device) for kind in kinds_of(argument)}
            self._note(argument, found)

    def before(self, device: int, instruction: Instruction, operands: Sequence[Any]) -> None:
        """A device is about to execute an instruction, which may give its operands to others."""
        if instruction.op.is_collective or instruction.op.transfer.sends:
            for operand in operands:
                for array in _arrays(operand):
                    for kind, origin in self._all(array).items():
                        self._sent[instruction.name, kind] = origin

    def after(
        self,
        device: int,
        module: Module,
        instruction: Instruction,
        operands: Sequence[Any],
        value: Any,
        loops: Sequence[tuple[str, int]],
    ) -> None:
        """A device has executed an instruction."""
        results = [array for array in _arrays(value) if not self._all(array)]
        kinds = [kinds_of(array) for array in results]
        if not any(kinds):
            return
        mine: dict[str, Origin] = {}
        for array in (a for operand in operands for a in _arrays(operand)):
            for kind, origin in self._all(array).items():
                if kind not in mine or (mine[kind].is_given and not origin.is_given):
                    mine[kind] = origin
        for array, found in zip(results, kinds):
            self._note(array, {kind: self._origin(kind, mine, device, module, instruction, loops) for kind in found})

    def _origin(
        self,
        kind: str,
        mine: dict[str, Origin],
        device: int,
        module: Module,
        instruction: Instruction,
        loops: Sequence[tuple[str, int]],
    ) -> Origin:
        """mine: the operands' origins, to which a new one is added."""
        if kind not in mine and (
            instruction.op.is_collective or instruction.op.transfer.receives or instruction.op.start_done.completes
        ):
            names = (instruction.name, *instruction.operands)
            sent = next((self._sent[name, kind] for name in names if (name, kind) in self._sent), None)
            if sent is not None:
                return sent
        if kind not in mine:
            cause = mine.get("Inf") if kind == "NaN" else None
            op = instruction.op
            mine[kind] = self._made(
                instruction.name, op.opcode, op.role.is_constant, device, tuple(loops), module, instruction, cause
            )
        return mine[kind]

    def _made(self, name: str, opcode: str, is_given: bool, device: int, *rest: Any) -> Origin:
        self._serial += 1
        return Origin(name, opcode, is_given, device, self._serial, *rest)

    def _all(self, array: Any) -> dict[str, Origin]:
        known = self._known.get(id(array))
        return known[1] if known is not None and known[0]() is array else {}

    def _note(self, array: Array, found: dict[str, Origin]) -> None:
        if found:
            key = id(array)
            self._known[key] = weakref.ref(array, lambda _: self._forget(key)), found

    def _forget(self, key: int) -> None:
        known = self._known.get(key)
        if known is not None and known[0]() is None:
            del self._known[key]

    # --- the error

    def error(self, outs: Mapping[int, Sequence[Any]]) -> NonFiniteError | None:
        """The first NaN of those in the results, else the first Inf that no constant or argument had. outs: leaves of
        the results by device."""
        for kind in KINDS:
            reached = {
                (leaf, device): origin
                for device, leaves in outs.items()
                for leaf, array in enumerate(leaves)
                if (origin := self.of(array, kind)) is not None
            }
            wanted = [o for o in reached.values() if kind == "NaN" or not o.is_given]
            if wanted:
                first = min(wanted, key=lambda origin: origin.serial)
                devices = [
                    device for (_, device), o in reached.items() if (o.name, o.loops) == (first.name, first.loops)
                ]
                if (
                    first.instruction is not None and first.instruction.op.is_collective
                ):  # whose result all members made
                    first = replace(first, device=min(devices))
                return error_of(kind, first, [*reached])
        return None


def error_of(kind: str, origin: Origin, reached: Sequence[tuple[int, int]]) -> NonFiniteError:
    """The error that names an origin. reached: (leaf, device) of the results that have such a value."""
    if origin.is_given:
        is_constant = op_class(origin.opcode).role.is_constant
        what = "the constant " if is_constant else ""
        where = "" if is_constant else f" on device {origin.device}"
        text = f"{what}{origin.name} has {kind}{where}"
    else:
        text = appears(kind, origin.name, origin.opcode, origin.device, origin.loops)
        text += ", whose operands have none"
    located = origin.module is not None and origin.instruction is not None
    location = origin.module.locate(origin.instruction) if located else None  # type: ignore[union-attr, arg-type]
    error = NonFiniteError("; ".join(filter(None, (text, results_text(kind, reached)))), location)
    error.kind, error.instruction, error.device = kind, origin.name, origin.device
    error.iterations = origin.loops
    if located:
        error.source = origin.module.frame(origin.instruction)  # type: ignore[union-attr, arg-type]
    if origin.cause is not None:
        error.add_note(cause_text(origin.cause))
    return error


def cause_text(cause: Origin) -> str:
    """A note of a NaN whose operands have Inf."""
    if cause.is_given:
        what = "the constant " if op_class(cause.opcode).role.is_constant else ""
        return f"its operands have Inf, as {what}{cause.name} has"
    return f"its operands have Inf: {appears('Inf', cause.name, cause.opcode, cause.device, cause.loops)}"


def appears(kind: str, name: str, opcode: str, device: int, loops: Sequence[tuple[str, int]]) -> str:
    """`NaN first appears in log.3 (log) on device 2, in iteration 4 of while.7`."""
    told = [f"iteration {number} of {loop}" for loop, number in reversed(loops) if number]
    return f"{kind} first appears in {name} ({opcode}) on device {device}{', in ' * bool(told)}{', '.join(told)}"


def results_text(kind: str, reached: Sequence[tuple[int, int]]) -> str:
    """`out0 has NaN on devices 0-3`; reached: (leaf, device)."""
    if not reached:
        return ""
    first = min(reached)[0]
    others = len({leaf for leaf, _ in reached}) - 1
    also = f", and so {'has 1 other result' if others == 1 else f'have {others} other results'}" if others else ""
    return f"out{first} has {kind} on {named(device for leaf, device in reached if leaf == first)}{also}"


def kinds_of(array: Any) -> list[str]:
    """Of KINDS those that an array has."""
    if not isinstance(array, np.ndarray) or array.dtype.kind in "biu" or not array.size:
        return []
    if not element_type_of(array.dtype).has_nan:
        return []
    with np.errstate(all="ignore"):
        found = np.isnan(array), np.isinf(array)
    return [kind for kind, has in zip(KINDS, found) if has.any()]


def _arrays(value: Any) -> Iterator[Array]:
    if isinstance(value, tuple):
        for element in value:
            yield from _arrays(element)
    elif isinstance(value, np.ndarray):
        yield value


__all__ = ["Origin", "Origins", "appears", "cause_text", "error_of", "kinds_of", "results_text"]
