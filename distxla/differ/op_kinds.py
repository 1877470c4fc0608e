"""The kinds of ops that a comparison distinguishes."""

from __future__ import annotations

from typing import Final

from distxla.ir.op import Op
from distxla.ops.all_to_all import AllToAll
from distxla.ops.bitcast import Bitcast
from distxla.ops.broadcast import Broadcast
from distxla.ops.channel import RecvDone
from distxla.ops.collective_permute import CollectivePermute
from distxla.ops.concatenate import Concatenate
from distxla.ops.copy import Copy
from distxla.ops.dynamic_slice import DynamicSlice
from distxla.ops.dynamic_update_slice import DynamicUpdateSlice
from distxla.ops.pad import Pad
from distxla.ops.ragged_all_to_all import RaggedAllToAll
from distxla.ops.reshape import Reshape
from distxla.ops.select import Select
from distxla.ops.slice import Slice
from distxla.ops.support.registry import op_class
from distxla.ops.transpose import Transpose

_PARTS: Final = (Slice, DynamicSlice, Reshape, Transpose, Broadcast, Bitcast, Copy)
_JOINS: Final = (Concatenate, DynamicUpdateSlice, Select, Pad)
_MOVES: Final = (AllToAll, RaggedAllToAll, CollectivePermute)


def takes_parts(op: Op) -> bool:
    """Whether the result is made of elements of the first operand and of nothing else."""
    return isinstance(op, _PARTS)


def joins(op: Op) -> bool:
    """Whether the result is put together of elements of several operands."""
    return isinstance(op, _JOINS)


def moves_between_devices(op: Op) -> bool:
    """Whether devices exchange values without combining them."""
    return isinstance(op, _MOVES)


def divides(op: Op) -> bool:
    return isinstance(op, op_class("divide"))


def keeps_whole(op: Op) -> bool:
    """Whether it may be there for the shards alone: of whole arrays it would be the identity."""
    kinds = (
        *_PARTS,
        *_JOINS,
        RecvDone,
        op_class("multiply"),
        op_class("divide"),
    )  # by the number of devices, of a mean
    return op.is_collective or isinstance(op, kinds)
