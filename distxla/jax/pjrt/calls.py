"""Calls of an executable: issued at once, run in order, with results that are pending."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distxla.errors import ArgumentError, OutOfMemoryError, UnsupportedOpError
from distxla.ir.element_type import TOKEN
from distxla.jax.pjrt.buffers import Buffer, constants_of
from distxla.jax.pjrt.devices import Device
from distxla.machine.heap import Block
from distxla.machine.pages import PAGE
from distxla.runtime.call_queue import PendingCall
from distxla.runtime.cluster import Cluster
from distxla.runtime.device_array import DeviceArray
from distxla.runtime.executable import Executable, aligned
from distxla.runtime.host_calls import require_outside


class Calls:
    """Calls of one executable. devices: in the order of its arguments and results.

    Results of a page and more have blocks of their own, so that the memory of each is free by itself; the others share
    one. UnsupportedOpError for programs whose dimension sizes are known at run time only.
    """

    def __init__(self, executable: Executable, devices: list[Device]) -> None:
        program = executable.program
        if program.parameter_sizes or program.result_sizes:
            raise UnsupportedOpError(f"{program.name} has dynamic dimensions: PJRT has none")
        self._executable = executable
        self._devices = devices
        self._ids = [device.id for device in devices]
        self._parameters = [constants_of(shape).shape for shape in executable.parameters]
        self._results = [constants_of(shape) for shape in executable.results]
        large = [result.size for result in self._results if result.size >= PAGE]
        self._places: list[tuple[int, int]] = []  # of each result: the number of its block, and where in it
        small = count = 0
        for result in self._results:
            is_large = result.size >= PAGE
            self._places.append((count, 0) if is_large else (len(large), small))
            count += is_large
            small += 0 if is_large else aligned(result.size)
        self._sizes = [*large, small] if small else large
        self._bytes = sum(self._sizes)

    def submit(self, cluster: Cluster, rows: list[list[Buffer]]) -> tuple[list[list[Buffer]], PendingCall]:
        """Call it behind all calls under way: the results of each device, which are pending, and the call.

        rows: the arguments of each device. Blocks while too many calls are under way. ArgumentError for arguments that
        do not fit, ClusterError in a host callback.
        """
        require_outside()
        cluster.queue.await_room(self._bytes)
        held, needs = self._checked(rows)
        try:
            blocks = self._allocated(cluster)
        except OutOfMemoryError:  # what calls under way give up is free after them
            cluster.queue.drain()
            blocks = self._allocated(cluster)
        places = [blocks[number].offset + place for number, place in self._places]
        offsets = np.array([[*(array.offset for array in row), *places] for row in held], np.uint64)
        executable = self._executable

        def run() -> None:
            cluster.issue([executable], lambda found: _place(found[0], offsets, [held, blocks]))

        call = PendingCall(executable.program.name, run, needs, self._bytes)
        made = [self._made(cluster, device, blocks, places, call) for device in self._devices]
        cluster.queue.submit(call)
        return made, call

    def _made(
        self, cluster: Cluster, device: Device, blocks: list[Block], places: list[int], call: PendingCall
    ) -> list[Buffer]:
        memory = cluster.memory(device.id)
        return [
            Buffer(DeviceArray(memory, blocks[number], place, device.id, result.shape), device, call, result)
            for result, place, (number, _) in zip(self._results, places, self._places)
        ]

    def _allocated(self, cluster: Cluster) -> list[Block]:
        return [cluster.heap.allocate(size, self._ids) for size in self._sizes]

    def _checked(self, rows: list[list[Buffer]]) -> tuple[list[list[DeviceArray]], list[PendingCall]]:
        """The arrays of the arguments, and the calls that make them and have not ended, or failed."""
        held: list[list[DeviceArray]] = []
        needs: list[PendingCall] = []
        for row, device in zip(rows, self._devices):
            if len(row) != len(self._parameters):
                raise ArgumentError(
                    f"expected {len(self._parameters)} arguments for {self._executable.program.name}, found {len(row)}"
                )
            for k, (buffer, shape) in enumerate(zip(row, self._parameters)):
                fits = buffer.shape is shape or shape.element_type is TOKEN  # for which JAX gives some empty array
                if not fits or buffer.device is not device:
                    raise ArgumentError(
                        f"argument {k}: expected {shape} on device {device.id}, found {buffer.shape} on device "
                        f"{buffer.device.id}"
                    )
                pending: Any = buffer.pending
                if pending is None:
                    continue
                if pending.is_over and pending.error is None:
                    buffer.pending = None
                elif pending not in needs:
                    needs.append(pending)
            held.append([buffer.live() for buffer in row])
        return held, needs


def _place(executable: Executable, offsets: NDArray[np.uint64], held: list[Any]) -> list[Any]:
    """Write the call area; the memory that must live until the call is over."""
    if offsets.size:
        executable.call_area[:, :] = offsets
    return held


__all__ = ["Calls"]
