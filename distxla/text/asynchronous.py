"""`<opcode>-start`, `-update`, `-done` of opcodes that have no asynchronous form of their own."""

from __future__ import annotations

from functools import cache
from typing import Final

from distxla.ir.op import Op
from distxla.lazy_dataclass import dataclass
from distxla.ops.support.registry import op_class, op_classes

_SUFFIXES: Final = ("start", "update", "done")


@dataclass(frozen=True, slots=True)
class Sugar:
    """The meaning of an opcode such as `reduce-scatter-start`.

    wrapped: the opcode inside.  async_opcode: the one it is short for.  wraps: whether it makes the computation (only
    the start does).  own_attributes: text names that belong to the async instruction.  read_as: the class whose
    attributes the text may have: those of the wrapped opcode and of the async one.
    """

    wrapped: str
    async_opcode: str
    wraps: bool
    own_attributes: tuple[str, ...]
    read_as: type[Op]


@cache
def sugar_of(opcode: str) -> Sugar | None:
    """None if the opcode is no sugar."""
    wrapped, _, suffix = opcode.rpartition("-")
    if suffix not in _SUFFIXES or wrapped not in op_classes():
        return None
    async_class = op_class(f"async-{suffix}")
    own = tuple(spec.text for spec in async_class.attributes() if spec.text != "calls")
    return Sugar(wrapped, async_class.opcode, suffix == "start", own, _joined(op_class(wrapped), async_class, own))


def _joined(wrapped: type[Op], async_class: type[Op], own: tuple[str, ...]) -> type[Op]:
    """A class that declares the attributes of both, to read the text by; it is never instantiated."""
    added = tuple(
        s for s in async_class.attributes() if s.text in own and s.text not in {a.text for a in wrapped.attributes()}
    )

    class Joined(wrapped):  # type: ignore[valid-type, misc]
        @classmethod
        def attributes(cls) -> tuple[object, ...]:
            return (*wrapped.attributes(), *added)

    return Joined
