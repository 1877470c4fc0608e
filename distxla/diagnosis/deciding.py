"""The origin of a loop's trip count, or of the choice of a branch, where these may differ between devices."""

from __future__ import annotations

from collections.abc import Iterator

from distxla.diagnosis.communicating import Located, caller
from distxla.ir.effects import Effects
from distxla.ir.module import Module
from distxla.ops.control_flow import While

MOST_NAMED = 3
OWN = (Effects.FEED, Effects.CHANNEL, Effects.RANDOM, Effects.CUSTOM)  # their results are a device's own

# computation, instruction, of a tuple the element; and whether a loop changes it: its first value says little then
_Value = tuple[str, str, int | None, bool]


def deciding(control: Located) -> list[Located]:
    """The infeeds, entry parameters, device ids and so on that a loop's condition, or a branch index, is computed from;
    where there are none, the constants that bound it.

    Not such as reach it through an all-reduce, an all-gather or a broadcast only: their result is the same on every
    member of the group.
    """
    module, op = control.module, control.instruction.op
    if isinstance(op, While):
        first: _Value = (op.condition, module[op.condition].root, None, False)
    else:
        first = (control.computation.name, control.instruction.operands[0], None, False)
    pending, seen = [first], {first}
    found: list[Located] = []
    constants: list[Located] = []
    while pending:
        value = pending.pop()
        located = _located(module, value)
        if _is_own(located):
            found.append(located)
            continue
        if located.instruction.op.role.is_constant and not value[3]:
            constants.append(located)
        for source in _sources(located, value[2], is_changed=value[3]):
            if source not in seen:
                seen.add(source)
                pending.append(source)
    unique = {id(located.instruction): located for located in found or constants}

    def rank(one: Located) -> tuple[bool, str, str]:
        return not one.instruction.op.role.given_by_caller, one.computation.name, one.instruction.name

    return sorted(unique.values(), key=rank)


def decided_by(control: Located) -> str:
    """`; infeed f (a.hlo:26:3) decides it, so give it the same values on these devices`; "" where nothing does that may
    differ."""
    sources = deciding(control)
    if not sources:
        return ""
    names = [f"{one.instruction.opcode} {one}" for one in sources[:MOST_NAMED]]
    more = f" and {len(sources) - MOST_NAMED} more" if len(sources) > MOST_NAMED else ""
    text = f"; {' and '.join(names)}{more} decide{'s' if len(sources) == 1 else ''} it"
    if all(one.instruction.op.role.given_by_caller for one in sources):
        text += f", so give {'it' if len(sources) == 1 else 'them'} the same values on these devices"
    return text


def _located(module: Module, value: _Value) -> Located:
    computation = module[value[0]]
    instruction = computation[value[1]]
    return Located(module, computation, 0, instruction)


def _is_own(located: Located) -> bool:
    """Whether a device has the value for itself: nothing says that others have the same."""
    op = located.instruction.op
    if op.role.is_parameter:
        return located.computation.name == located.module.entry
    if op.is_collective:
        return not op.round.same_for_all and not op.start_done.completes
    return op.effects in OWN or op.role.is_device_id


def _sources(located: Located, element: int | None, *, is_changed: bool) -> Iterator[_Value]:
    """The operands of a value that isn't a device's own."""
    module, holder, instruction = located.module, located.computation.name, located.instruction
    op = instruction.op
    if op.role.is_parameter:
        yield from _arguments(located, element, is_changed=is_changed)
    elif op.is_collective:
        if op.start_done.completes:
            yield holder, instruction.operands[0], element, is_changed
    elif op.role.is_tuple and element is not None:
        yield holder, instruction.operands[element], None, is_changed
    elif op.role.is_tuple_element:
        yield holder, instruction.operands[0], op.element_index, is_changed
    elif isinstance(op, While):
        yield from _state(located, element, is_changed=is_changed)
        if not _passes_on(located, element):  # it depends on how many iterations there are
            yield op.condition, module[op.condition].root, None, is_changed
    elif op.role.is_conditional:
        yield holder, instruction.operands[0], None, is_changed
        yield from ((name, module[name].root, element, is_changed) for name in op.branches)
    else:
        yield from ((holder, operand, None, is_changed) for operand in instruction.operands)
        yield from ((name, module[name].root, element, is_changed) for name in op.called_computations)


def _arguments(located: Located, element: int | None, *, is_changed: bool) -> Iterator[_Value]:
    """The arguments for a computation's parameter, of all its callers."""
    module, name = located.module, located.computation.name
    by = caller(module, name)
    if by is None:
        return
    op, holder = by.instruction.op, by.computation.name
    number = located.computation.parameters.index(located.instruction)
    if op.role.is_loop:
        yield from _state(by, element, is_changed=is_changed)
    elif op.role.is_conditional:
        values = [by.instruction.operands[1 + k] for k, branch in enumerate(op.branches) if branch == name]
        yield from ((holder, value, element, is_changed) for value in values)
    elif number < len(by.instruction.operands):
        yield holder, by.instruction.operands[number], element, is_changed


def _state(loop: Located, element: int | None, *, is_changed: bool) -> Iterator[_Value]:
    """A loop's state, or an element of it: before the loop and behind an iteration."""
    op = loop.instruction.op
    assert isinstance(op, While)
    is_changed = is_changed or not _passes_on(loop, element)
    yield loop.computation.name, loop.instruction.operands[0], element, is_changed
    yield op.body, loop.module[op.body].root, element, is_changed


def _passes_on(loop: Located, element: int | None) -> bool:
    """Whether an iteration leaves an element of the loop's state as it is."""
    op = loop.instruction.op
    assert isinstance(op, While)
    body = loop.module[op.body]
    if element is None or not body.root_instruction.op.role.is_tuple:
        return False
    given = body[body.root_instruction.operands[element]]
    return given.op.element_index == element and body[given.operands[0]].op.role.is_parameter


__all__ = ["decided_by", "deciding"]
