"""The targets "TopK" and "__gpu$TopK": XLA's forms of `topk`."""

from __future__ import annotations

from typing import Any

from distxla.ir.shape import ProgramShape
from distxla.ops.custom_calls.target import Call, CustomCallTarget, target
from distxla.ops.sort import TopK
from distxla.ops.support.emit import Buffer, KernelEmitter
from distxla.ops.support.evaluation import Evaluation


@target("TopK", "__gpu$TopK")
class TopKTarget(CustomCallTarget):
    """The largest elements of the last dimension and their indices; k is the result's last size.

    Source: the custom-call that XLA makes of `topk`, as its backends name it.
    """

    def obstacle(self, call: Call) -> str | None:
        top_k = _top_k(call)
        if top_k is None:
            return (
                f'custom-call of "{call.name}" from ({", ".join(map(str, call.operands))}) to {call.shape} is no top-k'
            )
        return top_k.obstacle(call.shape, call.operands)

    def evaluate(self, call: Call, run: Evaluation, *operands: Any) -> Any:
        return self._executed(call).evaluate(run, *operands)

    def emit_kernel(self, call: Call, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        self._executed(call).emit_kernel(emit, results, *operands)

    def _executed(self, call: Call) -> TopK:
        top_k = _top_k(call)
        if top_k is None:
            raise self.unsupported(call)
        return top_k


def _top_k(call: Call) -> TopK | None:
    """The op that the call executes; None for shapes that are not a top-k's."""
    shape, operands = call.shape, call.operands
    if len(operands) != 1 or not operands[0].is_array or not operands[0].rank:
        return None
    values = shape.elements[0] if shape.elements else shape
    k = values.dims[-1] if values.is_array and values.rank else -1
    if not 0 <= k <= operands[0].dims[-1]:
        return None
    top_k = TopK(k=k)
    return top_k if top_k.infer_shape(operands, _calls_nothing).compatible(shape) else None


def _calls_nothing(name: str) -> ProgramShape:
    raise KeyError(name)
