"""Arguments and results of a call by leaf: one leaf on all devices is a column.

A column lies at the same offset of every device's memory, so that a call of many devices takes as few steps in Python
as one of a single device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from distxla.errors import ArgumentError, UnsupportedOpError
from distxla.ir.shape import Shape
from distxla.machine.heap import Block
from distxla.runtime.arrays.call_queue import PendingCall
from distxla.runtime.arrays.device_array import DeviceArray
from distxla.runtime.arrays.executable import Executable, as_argument
from distxla.runtime.arrays.result_blocks import AllocatingCluster, BlockPlace, ResultBlocks
from distxla.runtime.values.host import DeviceMemory


class ColumnDevices(AllocatingCluster, Protocol):
    """The parts of a cluster that calls by columns use."""

    def memory(self, device: int) -> DeviceMemory:
        """A device's memory as the driver sees it."""

    def issue(self, executables: list[Executable], place: Callable[[list[Executable]], list[Any]]) -> object:
        """Load the executables, let `place` write their call areas, and run them."""


class Column:
    """A leaf on all devices of a call, in their order: an argument, or a result that may be pending.

    shape: on each device.  offset: in the devices' memories.  call: that makes it; None where it was put there.
    is_seen: whether callers had arrays of it, of which they may keep views.
    """

    __slots__ = ("_arrays", "_block", "_cluster", "call", "devices", "is_seen", "offset", "shape")

    def __init__(
        self,
        cluster: ColumnDevices,
        devices: tuple[int, ...],
        shape: Shape,
        block: Block,
        offset: int,
        call: PendingCall | None = None,
    ) -> None:
        self._cluster = cluster
        self._block: Block | None = block
        self._arrays: list[DeviceArray] | None = None
        self.is_seen = False
        self.devices = devices
        self.shape = shape
        self.offset = offset
        self.call = call

    @property
    def is_deleted(self) -> bool:
        """Whether its memory was given up."""
        return self._block is None

    @property
    def arrays(self) -> list[DeviceArray]:
        """The leaf on each device, in their order; does not block. ArgumentError once it was given up."""
        if self._arrays is None:
            self._arrays = [self.array(k) for k in range(len(self.devices))]
        return self._arrays

    def array(self, k: int) -> DeviceArray:
        """The leaf on the k-th device; does not block. ArgumentError once it was given up."""
        block, device = self._held(), self.devices[k]
        self.is_seen = True
        return DeviceArray(self._cluster.memory(device), block, self.offset, device, self.shape, pending=self.call)

    @property
    def place(self) -> BlockPlace:
        """Its memory. ArgumentError once it was given up."""
        return self._held(), self.offset

    def settle(self) -> None:
        """Block until the call is over that makes it; raises its failure."""
        if self.call is not None:
            self.call.wait()
            self.call = None

    def delete(self) -> None:
        """Give its memory up: it is free once calls under way and arrays in the caller's hands need it no more."""
        self._block = self._arrays = None

    def is_of(self, cluster: ColumnDevices, devices: tuple[int, ...]) -> bool:
        """Whether it lies on these devices of this cluster."""
        return self._cluster is cluster and self.devices == devices

    def _held(self) -> Block:
        if self._block is None:
            raise ArgumentError("the array was deleted, or donated to a call")
        return self._block


def put_column(
    cluster: ColumnDevices, devices: tuple[int, ...], shape: Shape, values: Sequence[Any], k: int = 0
) -> Column:
    """Copy an array to each device; `values` in the order of the devices, or one for all of them.

    k: the number of the argument, for messages. ArgumentError for other types and sizes than those of `shape`.
    """
    block = cluster.heap.allocate(shape.byte_size, devices)
    last, data = None, np.empty(0, np.uint8)
    for device, value in zip(devices, values if len(values) > 1 else [values[0]] * len(devices), strict=True):
        if value is not last or last is None:
            data, last = as_argument(value, shape, k, device), value
        cluster.memory(device).write(block.offset, data)
    return Column(cluster, devices, shape, block, block.offset)


class ColumnCalls:
    """Calls of one executable by columns.

    UnsupportedOpError for programs whose dimension sizes are known at run time only.
    """

    def __init__(self, cluster: ColumnDevices, executable: Executable) -> None:
        program = executable.program
        if program.parameter_sizes or program.result_sizes:
            raise UnsupportedOpError(f"{program.name} has dynamic dimensions: it cannot be called by columns")
        self._cluster = cluster
        self.executable = executable
        self._blocks = ResultBlocks(executable.results)

    def submit(self, columns: Sequence[Column], donated: Sequence[int] = ()) -> list[Column]:
        """Call it behind all calls under way; the columns of the results, which are pending.

        donated: numbers of arguments whose memory the caller gives up. Blocks while too many calls are under way.
        ArgumentError, and nothing is called, for columns that do not fit.
        """
        executable, cluster = self.executable, self._cluster
        self._require(columns)
        held = [column._held() for column in columns]
        needs = _calls_of(columns)
        given = self._given(columns, donated) if donated else {}
        results, size = self._blocks.allocate(cluster, executable.devices, given)
        offsets = np.array([*(column.offset for column in columns), *(place for _, place in results)], np.uint64)

        def run() -> None:
            cluster.issue([executable], lambda found: write_call_area(found[0], offsets, [held, results]))

        call = PendingCall(executable.program.name, run, needs, size)
        made = [
            Column(cluster, executable.devices, shape, block, place, call)
            for shape, (block, place) in zip(executable.results, results)
        ]
        cluster.queue.submit(call)
        for k in donated:
            columns[k].delete()
        return made

    def _given(self, columns: Sequence[Column], donated: Sequence[int]) -> dict[int, BlockPlace]:
        """Results that are computed in the memory of a donated column, which nobody else can see."""
        given = {}
        for result, k in self.executable.program.in_place:
            column = columns[k]
            if k in donated and not column.is_seen and sum(other.place == column.place for other in columns) == 1:
                given[result] = column.place
        return given

    def _require(self, columns: Sequence[Column]) -> None:
        executable = self.executable
        if len(columns) != executable.arity:
            raise ArgumentError(
                f"expected {executable.arity} arguments for {executable.program.name}, found {len(columns)}"
            )
        for k, (column, shape) in enumerate(zip(columns, executable.parameters)):
            if column.shape is not shape and not _fits(column.shape, shape):
                raise ArgumentError(f"argument {k}: expected {shape}, found {column.shape}")
            if not column.is_of(self._cluster, executable.devices):
                raise ArgumentError(f"argument {k}: it lies on other devices than those of {executable.program.name}")


def _calls_of(columns: Sequence[Column]) -> list[PendingCall]:
    """The calls that make them and have not ended, or failed."""
    found: list[PendingCall] = []
    for column in columns:
        call = column.call
        if call is None:
            continue
        if call.is_over and call.error is None:
            column.call = None
        elif call not in found:
            found.append(call)
    return found


def _fits(found: Shape, expected: Shape) -> bool:
    return found.element_type is expected.element_type and found.dims == expected.dims


def write_call_area(executable: Executable, offsets: NDArray[np.uint64], held: list[Any]) -> list[Any]:
    """Write the call area; the memory that must live until the call is over."""
    if offsets.size:
        executable.call_area[:, :] = offsets
    return held


__all__ = ["Column", "ColumnCalls", "ColumnDevices", "put_column", "write_call_area"]
