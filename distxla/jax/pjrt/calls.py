"""Calls of an executable: issued at once, run in order, with results that are pending."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from distxla.errors import ArgumentError, DistxlaError, UnsupportedOpError
from distxla.ir.element_type import TOKEN
from distxla.jax.pjrt.buffers import Buffer
from distxla.jax.pjrt.devices import Device
from distxla.jax.pjrt.late import is_late
from distxla.jax.pjrt.plans import DirectIssuer, Plan
from distxla.jax.pjrt.shape_constants import constants_of
from distxla.runtime.arrays.call_queue import PendingCall
from distxla.runtime.arrays.columns import write_call_area
from distxla.runtime.arrays.device_array import DeviceArray
from distxla.runtime.arrays.device_cluster import DeviceCluster
from distxla.runtime.arrays.executable import Executable
from distxla.runtime.arrays.host_calls import require_outside
from distxla.runtime.arrays.result_blocks import BlockPlace, ResultBlocks

if TYPE_CHECKING:
    from distxla.jax.processes.launches import Launch, Launches


class Calls:
    """Calls of one executable. devices: in the order of its arguments and results.  kinds: the memory of each result,
    by number.  launches: tells other processes of the calls; None where there are none.

    UnsupportedOpError for programs whose dimension sizes are known at run time only.
    """

    def __init__(
        self, executable: Executable, devices: list[Device], kinds: list[int], launches: Launches | None
    ) -> None:
        program = executable.program
        if program.parameter_sizes or program.result_sizes:
            raise UnsupportedOpError(f"{program.name} has dynamic dimensions: PJRT has none")
        self._executable = executable
        self._devices = devices
        self._ids = [device.id for device in devices]
        self._parameters = [constants_of(shape) for shape in executable.parameters]
        self._results = [constants_of(shape) for shape in executable.results]
        self._kinds = kinds
        self._blocks = ResultBlocks(executable.results)
        self._launches = launches

    def prepare(
        self, cluster: DeviceCluster, rows: list[list[Buffer]], donated: frozenset[int], line: str = ""
    ) -> tuple[list[list[Buffer]], PendingCall]:
        """A call for the cluster's queue: the results of each device, which are pending, and the call.

        rows: the arguments of each device.  donated: numbers of those whose memory the caller gives up.  line: the
        user's that calls, as JAX tells it.  Blocks while too many calls are under way. ArgumentError for arguments that
        do not fit, ClusterError in a host callback.
        """
        if self._launches is None:
            return self._prepare(cluster, rows, donated, None)
        launched: Any = self._executable  # of a cluster that has launches
        launch = self._launches.of(launched, line)
        try:
            return self._prepare(cluster, rows, donated, launch)
        except DistxlaError as error:  # others must not wait for this process
            launch.begin()
            launch.skip(error)
            raise

    def _prepare(
        self, cluster: DeviceCluster, rows: list[list[Buffer]], donated: frozenset[int], launch: Launch | None
    ) -> tuple[list[list[Buffer]], PendingCall]:
        require_outside()
        for row in rows if donated else ():
            _require_single_use(row, donated)
        if is_late() and cluster.queue.is_full:
            raise InterruptedError("a signal handler has raised while the call waited for others")
        held, needs = self._checked(rows)
        taken = self._taken(rows, held, donated) if donated else {}
        places, size = self._blocks.allocate(cluster, self._ids, {k: found[0] for k, found in taken.items()})
        results = [
            [taken[k][d] if k in taken else place for k, place in enumerate(places)] for d in range(len(self._devices))
        ]
        offsets = np.array(
            [[*(array.offset for array in row), *(offset for _, offset in found)] for row, found in zip(held, results)],
            np.uint64,
        )
        executable = self._executable

        def run() -> None:
            if launch is None:
                cluster.issue([executable], lambda found: write_call_area(found[0], offsets, [held, results]))
            else:
                launch.run(offsets, [held, results])

        call = PendingCall(executable.program.name, run, needs, size, launch=launch)
        made = [self._made(cluster, device, found, call) for device, found in zip(self._devices, results)]
        return made, call

    def plan(self, issuer: DirectIssuer, donated: frozenset[int]) -> Plan | None:
        """What native code needs for further calls, once the program is loaded; None where they are not ordinary."""
        return issuer.plan(
            self._executable, self._devices, self._parameters, self._results, self._kinds, self._blocks, donated
        )

    @property
    def has_begun(self) -> bool:
        """Whether the program is loaded."""
        return self._executable.number is not None

    def _made(
        self, cluster: DeviceCluster, device: Device, results: list[BlockPlace], call: PendingCall
    ) -> list[Buffer]:
        memory = cluster.memory(device.id)
        return [
            Buffer(
                DeviceArray(memory, block, offset, device.id, constants.shape),
                device,
                call,
                constants,
                memory=device.memories[kind],
            )
            for constants, kind, (block, offset) in zip(self._results, self._kinds, results, strict=True)
        ]

    def _taken(
        self, rows: list[list[Buffer]], held: list[list[DeviceArray]], donated: frozenset[int]
    ) -> dict[int, list[BlockPlace]]:
        """Results that are computed in the memory of donated buffers, which nobody else can see: by device."""
        taken = {}
        for result, k in self._executable.program.in_place:
            if k not in donated or any(row[k].is_referred or row[k].is_foreign for row in rows):
                continue
            places = [row[k].place for row in held]
            if all(sum(array.place == place for array in row) == 1 for row, place in zip(held, places)):
                taken[result] = places
        return taken

    def _checked(self, rows: list[list[Buffer]]) -> tuple[list[list[DeviceArray]], list[PendingCall]]:
        """The arrays of the arguments, and the calls that make them and have not ended, or failed."""
        held: list[list[DeviceArray]] = []
        needs: list[PendingCall] = []
        for row, device in zip(rows, self._devices):
            if len(row) != len(self._parameters):
                raise ArgumentError(
                    f"expected {len(self._parameters)} arguments for {self._executable.program.name}, found {len(row)}"
                )
            for k, (buffer, constants) in enumerate(zip(row, self._parameters)):
                shape = constants.shape
                fits = buffer.shape is shape or shape.element_type is TOKEN  # for which JAX gives some empty array
                if not fits or buffer.device is not device:
                    raise ArgumentError(
                        f"argument {k}: expected {shape} on device {device.id}, found {buffer.shape} on device "
                        f"{buffer.device.id}"
                    )
                pending: Any = buffer.settle()
                if pending is not None and pending not in needs:
                    needs.append(pending)
            held.append([buffer.live() for buffer in row])
        return held, needs


def _require_single_use(row: list[Buffer], donated: frozenset[int]) -> None:
    """ArgumentError where a device's argument is donated and given once more."""
    seen: dict[int, int] = {}
    for k, buffer in enumerate(row):
        first = seen.setdefault(buffer.handle, k)
        if first != k and (first in donated or k in donated):
            whose = first if first in donated else k
            raise ArgumentError(
                f"arguments {first} and {k} are the same buffer on device {buffer.device.id}, and argument {whose} is "
                "donated: expected a buffer of its own"
            )


__all__ = ["Calls"]
