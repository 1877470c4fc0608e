"""Trip counts of counted loops, computed without running them."""

from __future__ import annotations

from collections.abc import Sequence

from distxla.ir.computation import Computation
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ops.compare import Compare
from distxla.ops.control_flow import While
from distxla.scheduler.simulation.deferred import CallFrame, Deferred, Element, Given, force
from distxla.scheduler.simulation.static_values import Constant, PerDeviceConstant


def trip_count(frame: CallFrame, loop: Instruction, state: Deferred) -> int | None:
    """The loop's trip count from that state on, if the state holds a counter that a constant is added to and that is
    compared with a value that does not change; None for any other loop, and where devices differ."""
    op = loop.op
    assert isinstance(op, While)
    condition, body = frame.module[op.condition], frame.module[op.body]
    test = condition.root_instruction
    if not isinstance(test.op, Compare):
        return None
    left, right = (_side(frame, condition, name, body, state) for name in test.operands)
    direction = str(test.op.direction)
    if left is None or right is None:
        return None
    (first, step), (bound, other) = left, right
    if other and not step:
        first, step, bound, other = bound, other, first, step
        direction = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}.get(direction, direction)
    if other or not step:
        return None
    if direction in ("LE", "GE"):
        bound += 1 if direction == "LE" else -1
        direction = {"LE": "LT", "GE": "GT"}[direction]
    if direction == "NE":
        count, rest = divmod(bound - first, step)
        return count if not rest and count >= 0 else None
    if (direction, step > 0) not in (("LT", True), ("GT", False)):
        return None
    return max(0, -((first - bound) // step))


def _side(
    frame: CallFrame, condition: Computation, name: str, body: Computation, state: Deferred
) -> tuple[int, int] | None:
    """(value now, increment of an iteration) of an operand of the test."""
    instruction = condition[name]
    index = instruction.op.element_index
    if index is not None and condition[instruction.operands[0]].op.role.is_parameter:
        value = force(Element(state, index, frame.world.terms))
        step = _step(frame, body, index)
        now = _integer(value)
        return None if now is None or step is None else (now, step)
    if instruction.operands or instruction.op.role.is_parameter:
        return None
    inner = CallFrame(frame.world, frame.program, frame.module, condition, [state], frame.devices)
    now = _integer(force(inner[name]))
    return None if now is None else (now, 0)


def _step(frame: CallFrame, body: Computation, index: int) -> int | None:
    root = body.root_instruction
    if not root.op.role.is_tuple or not isinstance(body.parameters[0].shape.elements, tuple):
        return None
    new = body[root.operands[index]]
    if _is_element(body, new, index):
        return 0
    if not new.op.elements.is_sum or len(new.operands) != 2:
        return None
    parts = [body[name] for name in new.operands]
    if _is_element(body, parts[1], index):
        parts.reverse()
    if not _is_element(body, parts[0], index) or parts[1].operands or parts[1].op.role.is_parameter:
        return None
    nothing = CallFrame(frame.world, frame.program, frame.module, body, [Given(Constant(None))], frame.devices)
    return _integer(force(nothing[parts[1].name]))


def _is_element(body: Computation, instruction: Instruction, index: int) -> bool:
    return instruction.op.element_index == index and body[instruction.operands[0]].op.role.is_parameter


def passes_on(module: Module, loop: Instruction, index: int) -> bool:
    """Whether an iteration leaves an element of the loop's state as it is."""
    op = loop.op
    assert isinstance(op, While)
    body = module[op.body]
    root = body.root_instruction
    return root.op.role.is_tuple and _is_element(body, body[root.operands[index]], index)


def differing_bound(frame: CallFrame, loop: Instruction, elements: Sequence[Deferred]) -> Instruction | None:
    """The instruction of the part of a loop's first state that its condition reads and that is known to differ from
    device to device; None if there is none. elements: of that state."""
    op = loop.op
    assert isinstance(op, While)
    condition, begin = frame.module[op.condition], frame.computation[loop.operands[0]]
    if begin.op.role.is_tuple:
        for index in range(len(elements)):
            if any(_is_element(condition, i, index) for i in condition) and isinstance(
                force(elements[index]), PerDeviceConstant
            ):
                return frame.computation[begin.operands[index]]
    return None


def _integer(value: object) -> int | None:
    if isinstance(value, Constant) and value.array is not None and not isinstance(value.array, tuple):
        array = value.array
        if array.ndim == 0 and array.dtype.kind in "iu":
            return int(array)
    return None
