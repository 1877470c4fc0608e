"""The items of a round that are done by a proxy: the program's own function, on a round of our own."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from distxla.collectives.protocols import group as group_words
from distxla.collectives.protocols import rounds as round_words
from distxla.collectives.transports.tcp.round_plan import LoadedWork
from distxla.program.execution_context import ExecutionContext

ITEMS = ctypes.CFUNCTYPE(
    ctypes.c_int32,  # a Status: items in the host's memory can't fail
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int64,
)


class AddressedRound:
    """An area of a group's round (protocols/group.py) outside of any control block. Its members post addresses of this
    process, and the context's memories begin at 0: so items work on any memory."""

    def __init__(self, loaded: LoadedWork, members: Sequence[int]) -> None:
        """members: device ids in group order."""
        self._area: NDArray[np.uint64] = np.zeros(group_words.round_bytes(len(members)) // 8, np.uint64)
        self._kept = self._area
        self._context = ExecutionContext.of_addresses(members[0], max(members) + 1)
        self._table, self._members = loaded.table, np.array(members, np.uint32)
        self._items = ITEMS(loaded.do_items)

    def post(self, position: int, leaf: int, addresses: Sequence[int]) -> None:
        """A member's buffers from leaf `leaf` on: operands, then results, then shared places."""
        begin = group_words.E_SLOTS + position * round_words.SLOT_BYTES + round_words.S_OFFSETS + 8 * leaf
        self._area[begin // 8 : begin // 8 + len(addresses)] = addresses

    def posted(self, position: int, leaf: int, count: int) -> list[int]:
        """The slot that a member has filled."""
        begin = group_words.E_SLOTS + position * round_words.SLOT_BYTES + round_words.S_OFFSETS + 8 * leaf
        return [int(value) for value in self._area[begin // 8 : begin // 8 + count]]

    def write_once(self) -> None:
        """Results go to the shared places that the first member has posted."""
        self._area.view(np.uint32)[group_words.E_ONCE // 4] = 1

    def keep(self) -> None:
        """Remember the posted slots, for `restore`."""
        self._kept = self._area.copy()

    def restore(self) -> None:
        self._area[:] = self._kept

    def do_items(self, targets: int, first: int, end: int) -> None:
        """Do these items. targets: members that get the common results, from the first place on; or the group's
        size."""
        slots = int(self._area.ctypes.data) + group_words.E_SLOTS
        ids, table = int(self._members.ctypes.data), int(self._table.ctypes.data)
        self._items(self._context.address, slots, ids, targets, table, first, end)
