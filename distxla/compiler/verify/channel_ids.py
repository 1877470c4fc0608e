"""Channels, and the attributes that all instructions of a kind must agree on."""

from __future__ import annotations

from collections.abc import Iterator

from distxla.errors import VerificationError
from distxla.ir.effects import Effects
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.stream_key import FIRST_HOST_CALL
from distxla.ops.all_reduce import AllReduce


def verify_channels(module: Module) -> None:
    """Raise VerificationError, located, for rules `channel.id`, `channel.kind`, `channel.host` and `all-reduce.layout`.

    A channel of transfers carries no collectives. Transfers with the host share a channel with others like themselves
    only: of one direction and type, with the same attributes; calls of the driver's functions share theirs. Either all
    all-reduces constrain layouts or none does.
    """
    kinds: dict[int, tuple[Instruction, str]] = {}
    hosts: dict[int, Instruction] = {}
    reduction: Instruction | None = None
    for instruction in _communicating(module):
        op = instruction.op
        channel = op.channel
        if channel is not None:
            _of_one_kind(module, instruction, channel, kinds)
            if op.transfer.starts and not op.is_device_transfer and channel < FIRST_HOST_CALL:
                _like_the_first(module, instruction, hosts.setdefault(channel, instruction))
        if isinstance(op, AllReduce):
            reduction = reduction or instruction
            _constrains_likewise(module, instruction, reduction)


def _communicating(module: Module) -> Iterator[Instruction]:
    for computation in module.computations:
        for instruction in computation:
            if instruction.op.effects in (Effects.CHANNEL, Effects.COLLECTIVE):
                yield instruction


def _of_one_kind(
    module: Module, instruction: Instruction, channel: int, kinds: dict[int, tuple[Instruction, str]]
) -> None:
    if channel < 0:
        raise _error(module, instruction, "channel_id", f"channel.id: channel_id={channel} is negative")
    kind = "collectives"
    if instruction.op.effects is Effects.CHANNEL:
        kind = "transfers between devices" if instruction.op.is_device_transfer else "transfers with the host"
    other, have = kinds.setdefault(channel, (instruction, kind))
    if have != kind:
        message = f"channel.kind: channel {channel} carries {kind} here and {have} in {other.name}"
        raise _error(module, instruction, "channel_id", message)


def _like_the_first(module: Module, instruction: Instruction, first: Instruction) -> None:
    for what, mine, theirs in (
        ("opcode", instruction.opcode, first.opcode),
        ("shape", str(instruction.shape), str(first.shape)),
        ("frontend_attributes", sorted(instruction.frontend_attributes), sorted(first.frontend_attributes)),
    ):
        if mine != theirs:
            message = (
                f"{what} is {mine} here and {theirs} in {first.name}, a transfer with the host on the same channel"
            )
            raise _error(module, instruction, what, f"channel.host: {message}")


def _constrains_likewise(module: Module, instruction: Instruction, first: Instruction) -> None:
    mine, theirs = (i.op.constrain_layout for i in (instruction, first))  # type: ignore[attr-defined]
    if mine != theirs:
        message = f"constrain_layout is {_word(mine)} here and {_word(theirs)} in {first.name}: all must say the same"
        raise _error(module, instruction, "constrain_layout", f"all-reduce.layout: {message}")


def _word(value: bool) -> str:
    return "true" if value else "false"


def _error(module: Module, instruction: Instruction, part: str, message: str) -> VerificationError:
    return VerificationError(message, module.locate(instruction, part))
