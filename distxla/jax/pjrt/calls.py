"""Calls of an executable: issued at once, run in order, with results that are pending."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distxla.errors import ArgumentError, UnsupportedOpError
from distxla.ir.element_type import TOKEN
from distxla.jax.pjrt.buffers import Buffer, constants_of
from distxla.jax.pjrt.devices import Device
from distxla.machine.heap import Block
from distxla.runtime.call_queue import PendingCall
from distxla.runtime.cluster import Cluster
from distxla.runtime.device_array import DeviceArray
from distxla.runtime.executable import Executable
from distxla.runtime.host_calls import require_outside
from distxla.runtime.result_blocks import ResultBlocks


class Calls:
    """Calls of one executable. devices: in the order of its arguments and results.

    UnsupportedOpError for programs whose dimension sizes are known at run time only.
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
        self._blocks = ResultBlocks(executable.results)

    def submit(self, cluster: Cluster, rows: list[list[Buffer]]) -> tuple[list[list[Buffer]], PendingCall]:
        """Call it behind all calls under way: the results of each device, which are pending, and the call.

        rows: the arguments of each device. Blocks while too many calls are under way. ArgumentError for arguments that
        do not fit, ClusterError in a host callback.
        """
        require_outside()
        held, needs = self._checked(rows)
        results = self._blocks.allocate(cluster, self._ids)
        offsets = np.array(
            [[*(array.offset for array in row), *(place for _, place in results)] for row in held], np.uint64
        )
        executable = self._executable

        def run() -> None:
            cluster.issue([executable], lambda found: _place(found[0], offsets, [held, results]))

        call = PendingCall(executable.program.name, run, needs, self._blocks.bytes)
        made = [self._made(cluster, device, results, call) for device in self._devices]
        cluster.queue.submit(call)
        return made, call

    def _made(
        self, cluster: Cluster, device: Device, results: list[tuple[Block, int]], call: PendingCall
    ) -> list[Buffer]:
        memory = cluster.memory(device.id)
        return [
            Buffer(DeviceArray(memory, block, place, device.id, constants.shape), device, call, constants)
            for constants, (block, place) in zip(self._results, results)
        ]

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
