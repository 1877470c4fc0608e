"""Custom-calls that make buffers, arrays that are changed in place, and end them.

A buffer has one writer at most (compiler/verify/buffer_types.py), so its content between two writers is a value like
any other: both executors pass on arrays, and a routine that changes a buffer finds operand and result at one address.
"""

from __future__ import annotations

from typing import Any, Final

from distxla.ops.custom_calls.annotation import Annotation
from distxla.ops.custom_calls.target import Call, CustomCallTarget, target
from distxla.ops.support.emit import Buffer, KernelEmitter
from distxla.ops.support.evaluation import Evaluation

PIN: Final = "Pin"
UNPIN: Final = "Unpin"
CREATE: Final = "CreateBuffer"
ALLOCATE: Final = "AllocateBuffer"


@target(PIN, UNPIN)
class Pinning(Annotation):
    """The operand as a buffer, or the content of a buffer.

    Source: StableHLO's RFC on buffers; XLA's HloVerifier, `VerifyPin` and `VerifyUnpin`.
    """

    def obstacle(self, call: Call) -> str | None:
        contents = Call(
            call.instruction.replace(shape=call.shape.contents), tuple(operand.contents for operand in call.operands)
        )
        return super().obstacle(contents)


@target(CREATE, ALLOCATE)
class Creation(CustomCallTarget):
    """A buffer, or an array, of zeros: XLA leaves its content open, and no memory is read that was never written.

    Source: StableHLO's RFC on buffers; XLA's GPU backend, which emits nothing for both.
    """

    def obstacle(self, call: Call) -> str | None:
        if call.operands or not call.shape.is_array:
            return (
                f'custom-call of "{call.name}" from {", ".join(map(str, call.operands)) or "nothing"} to {call.shape}'
            )
        return None

    def evaluate(self, call: Call, run: Evaluation, *operands: Any) -> Any:
        import numpy as np

        return np.zeros(call.shape.dims, np.int8).astype(call.shape.dtype.dtype)  # f8e8m0fnu has no zero, but NaN

    def emit_kernel(self, call: Call, emit: KernelEmitter, results: tuple[Buffer, ...], *operands: Buffer) -> None:
        for result in results:
            emit.fill(result, emit.constant(0, result.shape.dtype))
