"""Custom-calls in schedules of XLA's TPU compiler that state the memory or time of a value, not the value.

Sources: schedules that libtpu writes, compiled ahead of time for v4, v5e, v5p and v6e, and the values that the programs
have on other backends. "AllocateBuffer" is in buffers.py, "AsyncCollectiveStart" and "AsyncCollectiveDone" are gone by
now (distxla/rewrites/spread_collectives.py) where they can be executed.
"""

from __future__ import annotations

from typing import Any

from distxla.ir.element_type import S32
from distxla.ir.shape import Shape
from distxla.ops.concatenate import Concatenate
from distxla.ops.custom_calls.annotation import Annotation
from distxla.ops.custom_calls.expanded import ExpandedTarget
from distxla.ops.custom_calls.ffi.config import ConfigError
from distxla.ops.custom_calls.target import Call, CustomCallTarget, target
from distxla.ops.support.emit import Buffer, KernelEmitter
from distxla.ops.support.evaluation import Evaluation
from distxla.ops.support.expansion import Build


@target("AssumeGatherIndicesInBound", "GatherScatterIndicesBitpacked")
class Indices(Annotation):
    """The operand itself: indices of a gather or scatter, of which it is said how large they can get."""


@target("ConcatBitcast")
class ConcatBitcast(ExpandedTarget):
    """Slices of an array that were copied one by one, as the array that they are in memory.

    Shapes:  arrays that differ along one dimension at most -> all of them along that one.
    """

    def expand(self, call: Call, build: Build, *operands: str) -> str:
        result = call.shape
        arrays = all(shape.is_array and shape.rank == result.rank for shape in (result, *call.operands))
        if not operands or not arrays:
            raise ConfigError(f"joins slices of an array, not {_list(call)}, to {result}")
        joined = [d for d in range(result.rank) if any(shape.dims[d] != result.dims[d] for shape in call.operands)]
        if len(operands) == 1 and not joined:
            return operands[0]
        if len(joined) != 1:
            raise ConfigError(f"joins slices along one dimension, not {_list(call)}, to {result}")
        return build.add(Concatenate(dimensions=(joined[0],)), *operands)


@target("PrepareAsyncCallStart")
class PrepareAsyncCallStart(CustomCallTarget):
    """Zero: a handle of the preparation, which nothing but its done reads.

    Shapes:  () -> s32[].
    """

    def obstacle(self, call: Call) -> str | None:
        fits = not call.operands and call.shape.compatible(Shape(S32))
        return None if fits else f'custom-call of "{call.name}" to {call.shape}, not of nothing to s32[]'

    def evaluate(self, call: Call, run: Evaluation, *operands: Any) -> Any:
        import numpy as np

        return np.zeros((), np.int32)

    def emit_kernel(self, call: Call, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        results[0].store((), emit.constant(0, S32))


@target("PrepareAsyncCallDone")
class PrepareAsyncCallDone(CustomCallTarget):
    """A token, behind which an asynchronous call may begin: another core of the chip is ready to run it.

    Shapes:  s32[] -> token[].
    """

    def obstacle(self, call: Call) -> str | None:
        fits = [o.compatible(Shape(S32)) for o in call.operands] == [True] and call.shape.is_token
        return None if fits else f'custom-call of "{call.name}" to {call.shape}, not of s32[] to token[]'

    def evaluate(self, call: Call, run: Evaluation, *operands: Any) -> Any:
        return None

    def emit_kernel(self, call: Call, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        return


@target("AsyncCollectiveStart", "AsyncCollectiveDone")
class SpreadCollective(CustomCallTarget):
    """Where a collective that is spread over several fusions begins, and ends: joined before anything is executed."""

    def obstacle(self, call: Call) -> str | None:
        return (
            f'custom-call of "{call.name}" without its other end: this version joins AsyncCollectiveStart(collective) '
            "with the AsyncCollectiveDone(operand, result, ..) of the same computation that gets its parts"
        )


def _list(call: Call) -> str:
    return ", ".join(map(str, call.operands))
