"""Which instruction a device would have to execute so that another one can go on, as far as the text tells."""

from __future__ import annotations

from collections.abc import Iterator

from distxla.collectives.channels import read_end
from distxla.diagnosis.communicating import Located, communicating, start_of, structure_of
from distxla.errors import VerificationError
from distxla.ir.module import Module
from distxla.ir.op import Op
from distxla.ir.shape import Shape
from distxla.ops.channel import ChannelOp, Recv, RecvDone, Send, SendDone


def counterpart(waiting: Located, here: Located | None, module: Module, waiter: int, device: int) -> Located | None:
    """The instruction that `device`, which runs `module` and is at `here` (None: it has ended), would have to execute.

    waiting: the instruction in which `waiter` waits. Both devices are named as in their programs.
    """
    op = waiting.instruction.op
    if isinstance(op, ChannelOp):
        kind = Send if isinstance(op, RecvDone) else Recv if isinstance(op, SendDone) else RecvDone
        ends = (device, waiter) if isinstance(op, RecvDone) else (waiter, device)
        return next(_on_channel(module, kind, op.channel_id or 0, ends), None)
    start = start_of(waiting)
    same_kind = [one for one in communicating(module) if is_same(one, start)]
    near = [one for one in same_kind if here is not None and one.computation is here.computation]
    if module is waiting.module and (not near or any(one.instruction is start.instruction for one in near)):
        return start
    near = [one for one in near if here is not None and one.position > here.position] or near  # it is to come
    same_kind = (
        near
        or same_kind
        or [one for one in communicating(module) if one.instruction.opcode == start.instruction.opcode]
    )
    return same_kind[0] if same_kind else None


def _on_channel(module: Module, kind: type[ChannelOp], channel: int, ends: tuple[int, int]) -> Iterator[Located]:
    """Sends, recvs or recv-dones of a channel, those first whose pairs name this transfer; where it has none, such of
    other channels that may have been joined to it (joined_channels.py). ends: source and target."""
    every = [(one, op.channel_id or 0) for one in communicating(module) if isinstance(op := one.instruction.op, kind)]
    found = [one for one, number in every if number == channel]
    for one in found or [one for one, _ in every]:
        if kind is RecvDone:
            continue
        try:
            pairs = read_end(one.instruction).pairs
        except VerificationError:
            pairs = None
        if pairs is not None and ends in pairs:
            yield one
    yield from found


def is_same(one: Located, other: Located) -> bool:
    """Whether two collectives may meet in one round."""
    mine, theirs = one.instruction.op, other.instruction.op
    if isinstance(mine, ChannelOp) or isinstance(theirs, ChannelOp):
        return False
    if one.instruction is other.instruction:
        return True
    if type(mine) is not type(theirs) or _types(one) != _types(other):
        return False
    if mine == theirs and one.module is other.module:
        return True
    return _called(one) == _called(other) and _meaning(one) == _meaning(other)


def needs_result(one: Located, other: Located) -> bool:
    """Whether an instruction can only be executed behind another one of its computation, as it depends on the result.

    Two rounds may change places with their operands: not so values that are sent or received.
    """
    if not any(isinstance(located.instruction.op, ChannelOp) for located in (one, other)):
        return False
    names, seen = [one.instruction.name], {one.instruction.name}
    while names:
        instruction = one.computation[names.pop()]
        for name in (*instruction.operands, *instruction.control_predecessors):
            if name == other.instruction.name:
                return True
            if name not in seen:
                seen.add(name)
                names.append(name)
    return False


def _meaning(located: Located) -> Op:
    """Its op, called computations by their structure: their names may mean something else in another module."""
    return located.instruction.op.rename_computations(lambda name: structure_of(located.module, name))


def _called(located: Located) -> list[str]:
    """The structures of the called computations."""
    return [structure_of(located.module, name) for name in located.instruction.op.called_computations]


def _types(located: Located) -> list[Shape]:
    """Of the result and the operands, on which members of a round must agree."""
    return [shape.without_layout() for shape in (located.instruction.shape, *located.operands)]
