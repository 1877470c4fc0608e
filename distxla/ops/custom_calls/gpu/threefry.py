"""The Threefry generator as JAX calls it on a GPU."""

from __future__ import annotations

from distxla.ir.element_type import U32
from distxla.lazy_dataclass import dataclass
from distxla.ops.custom_calls import steps
from distxla.ops.custom_calls.expanded import CallBuild, ExpandedTarget
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.gpu.fields import ffi_fields
from distxla.ops.custom_calls.target import Call, target
from distxla.ops.support.expansion import Build
from distxla.ops.support.random_bits import threefry


@target("cu_threefry2x32_ffi")
class Threefry(ExpandedTarget):
    """Threefry-2x32: two arrays of key words and two of counters, u32 of equal dimension sizes, give two of random
    bits."""

    def expand(self, call: Call, build: CallBuild, *operands: str) -> str:
        ffi_fields(call).only(())
        steps.operands_required(call, [4], "two arrays of keys and two of counters")
        first = build.shape(operands[0])
        if first.dtype is not U32 or any(build.shape(operand) != first for operand in operands):
            raise ConfigError(
                f"takes four arrays u32 of equal dimension sizes, not ({', '.join(map(str, call.operands))})"
            )
        words = [_Words(build, operand) for operand in operands]
        found = threefry((words[0], words[1]), (words[2], words[3]))
        return steps.joined(call, build, [word.name for word in found])


@dataclass(frozen=True)
class _Words:
    """An array of unsigned integers with the operators that the rounds need; ints mix in."""

    build: Build
    name: str

    def _binary(self, opcode: str, other: _Words | int) -> _Words:
        right = steps.like(self.build, other, self.name) if isinstance(other, int) else other.name
        return _Words(self.build, self.build.compute(opcode, self.name, right))

    def __add__(self, other: _Words | int) -> _Words:
        return self._binary("add", other)

    def __xor__(self, other: _Words | int) -> _Words:
        return self._binary("xor", other)

    def __or__(self, other: _Words | int) -> _Words:
        return self._binary("or", other)

    def __lshift__(self, distance: int) -> _Words:
        return self._binary("shift-left", distance)

    def __rshift__(self, distance: int) -> _Words:
        return self._binary("shift-right-logical", distance)
