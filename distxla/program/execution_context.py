"""The execution context of a device: compiled code's access to its surroundings. Only this file makes abi.Context."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from distxla.program.abi import Context


class ExecutionContext:
    """A Context and the tables that it points to, which live as long as this.

    address: to be given to native code.  context: the structure itself, whose fields may be set later.
    """

    def __init__(
        self,
        device: int,
        memories: Sequence[int | None],
        *,
        partitions: int = 1,
        control: int = 0,
        call: int | None = None,
        record: int = 0,
        arena: int = 0,
        parameters: int | Sequence[int] = (),
        results: int | Sequence[int] = (),
        routines: Sequence[int | None] = (),
        communicators: Sequence[int | None] = (),
        shared: Sequence[int] = (),
        assignment: Sequence[int] | None = None,
    ) -> None:
        """device: flattened id.  memories: where each device's memory begins in this process, None for one elsewhere.

        control, record: addresses of the control block and of the device's record there.  call: of the header of the
        device's slice; None: the control block's own.  arena, shared: offsets in the device's memory.  parameters,
        results: offsets of the leaves' buffers, or the address of a table of them.
        routines: one a communicating site.  communicators: the device's group's state, None where it is in no group.
        assignment: the run's device for each of the program's; None where they are the same.
        """
        tables: list[Any] = [
            _pointers(memories),
            None if isinstance(parameters, int) else _offsets(parameters),
            None if isinstance(results, int) else _offsets(results),
            _pointers(routines),
            _pointers(communicators),
            _offsets(shared),
            _ids(range(len(memories)) if assignment is None else assignment),
            _pointers(memories if assignment is None else [memories[assigned] for assigned in assignment]),
        ]
        logical = device if assignment is None else tuple(assignment).index(device)
        replica, partition = divmod(logical, partitions)
        memory, sent, received, communicate, states, arenas, ids, peers = (
            0 if t is None else ctypes.addressof(t) for t in tables
        )
        self._tables = tables
        self.context = Context(
            memory=memory,
            arena=arena,
            parameters=parameters if isinstance(parameters, int) else sent,
            results=results if isinstance(results, int) else received,
            communicate=communicate,
            communicators=states,
            control=control,
            call=control if call is None else call,
            record=record,
            device=device,
            replica=replica,
            partition=partition,
            device_count=len(memories),
            shared=arenas,
            assignment=ids,
            logical=logical,
            peers=peers,
        )

    @classmethod
    def of_addresses(cls, device: int, device_count: int) -> ExecutionContext:
        """One in which every device's memory begins at 0, so that addresses of this process serve as offsets."""
        return cls(device, [0] * device_count)

    @property
    def address(self) -> int:
        return ctypes.addressof(self.context)


def _pointers(addresses: Sequence[int | None]) -> Any:
    return (ctypes.c_void_p * max(1, len(addresses)))(*addresses)


def _ids(devices: Sequence[int]) -> Any:
    return (ctypes.c_uint32 * max(1, len(devices)))(*devices)


def _offsets(offsets: Sequence[int]) -> Any:
    return (ctypes.c_uint64 * max(1, len(offsets)))(*offsets)
