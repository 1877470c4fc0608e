"""HLO `async-start`, `async-update` and `async-done`: an instruction that overlaps with others."""

from __future__ import annotations

from distxla.ops.attribute import attribute
from distxla.ops.op import Lowering, Op
from distxla.ops.registry import register


@register
class AsyncStart(Op):
    """Begin a computation; its result is taken by async-done."""

    opcode = "async-start"
    lowering = Lowering.NONE
    needs_shape = True
    async_execution_thread: str = attribute("string", default="main")
    output_to_operand_aliasing: tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...] = attribute(
        "aliasing", default=()
    )
    calls: str = attribute("computation")


@register
class AsyncUpdate(Op):
    """Give a computation under way a chance to go on."""

    opcode = "async-update"
    lowering = Lowering.NONE
    min_operands = 1
    max_operands = 1
    needs_shape = True
    async_execution_thread: str | None = attribute("string", default=None)
    calls: str | None = attribute("computation", default=None)


@register
class AsyncDone(Op):
    """Wait for a computation and take its result."""

    opcode = "async-done"
    lowering = Lowering.NONE
    min_operands = 1
    max_operands = 1
    needs_shape = True
    async_execution_thread: str | None = attribute("string", default=None)
    calls: str | None = attribute("computation", default=None)
