"""Streams and host calls in a JAX process: it has the ends of its own devices' streams, whose states the owner makes.

So functions that a device calls run in the process that addresses the device, and their arrays pass through memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from distxla import clock
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.errors import ClusterError, DistxlaError
from distxla.ir.stream_key import StreamKey
from distxla.jax.processes.launches import Serving
from distxla.machine.segments import Segment
from distxla.program.artifact import CompiledProgram
from distxla.program.host_call_site import HostCallSite
from distxla.runtime.arrays.host_calls import SLICE_S, BoundHostCall, Finish, HostCalls
from distxla.runtime.streams.stream_ends import Allocate, LocalStreamMemory, StreamMemory
from distxla.runtime.streams.stream_states import StreamPlace
from distxla.runtime.streams.streams import ClusterStreams, Infeed, Outfeed
from distxla.runtime.values.host import Records, record_bytes

Function = Callable[..., object]
Why = Callable[[], DistxlaError | None]


class _Serving:
    """See launches.Serving."""

    def __init__(self, calls: HostCalls, finish: Finish) -> None:
        self._calls = calls
        self.finish = finish

    @property
    def failure(self) -> DistxlaError | None:
        return self._calls.failure


class AttachedStreams:
    """The ends of the streams of this process's devices, and the functions that these devices call.

    memory: of a device.  allocate: memory of the devices, at one offset on each.  lost: why no call can be made any
    more, if so.  stop_reason: why the call that this thread runs should end, if so.
    """

    def __init__(
        self,
        control: ControlBlock,
        memory: Callable[[int], Segment],
        allocate: Allocate,
        lost: Why,
        stop_reason: Why = lambda: None,
    ) -> None:
        self._control = control
        self._memory = memory
        self._lost = lost
        self.stop_reason = stop_reason
        self._places: dict[tuple[int, StreamKey], int] = {}
        self._streams = ClusterStreams(self._place, allocate, self._stream_memory, lost)
        self._calls = HostCalls()
        self._unsettled: set[int] = set()  # devices whose last call has failed

    def load(
        self, number: int, program: CompiledProgram, devices: Collection[int], places: Sequence[StreamPlace]
    ) -> None:
        """A program was loaded under this number; none of these devices runs one. places: of its streams' states."""
        if not places:
            return
        for device, code, offset in places:
            self._places[device, StreamKey.of_code(code)] = offset
        self._await_devices(devices)
        for device, code, _ in places:
            self._streams.place(device, StreamKey.of_code(code))
        self._streams.load(number, program, devices)

    def bound(
        self,
        sites: Sequence[HostCallSite],
        functions: Mapping[Any, Callable[..., object]],
        devices: Sequence[int],
    ) -> tuple[BoundHostCall, ...]:
        """See HostCalls.bound."""
        return self._calls.bound(sites, functions, devices)

    @contextmanager
    def during(self, devices: Sequence[int], calls: tuple[BoundHostCall, ...]) -> Iterator[Serving]:
        """The body runs a program with these calls on these devices. At its end all functions have returned; raises the
        error of one."""
        self._await_devices(devices)
        with self._calls.during(self._streams, dict.fromkeys(devices, calls), None, self.stop_reason) as finish:
            try:
                with self._streams.call(devices):
                    yield _Serving(self._calls, finish)
            except BaseException:
                self._unsettled.update(devices)
                self._streams.note_ends(devices, self._records(devices))
                raise

    def infeed(self, device: int, channel: int | None = None) -> Infeed:
        """See ClusterStreams. ClusterError while no program that takes from it is loaded."""
        return self._streams.infeed(device, channel)

    def outfeed(self, device: int, channel: int | None = None) -> Outfeed:
        """See ClusterStreams. ClusterError while no program that puts into it is loaded."""
        return self._streams.outfeed(device, channel)

    def close(self) -> None:
        """End all waits. Memory may be given back when this returns."""
        self._calls.close()
        self._streams.close()

    # --- states

    def _place(self, device: int, key: StreamKey) -> int:
        found = self._places.get((device, key))
        if found is None:
            raise ClusterError(f"the {key} of device {device}: no program that uses it is loaded in this process")
        return found

    def _stream_memory(self, device: int) -> StreamMemory:
        return LocalStreamMemory(self._control.segment.bytes, self._memory(device))

    def _await_devices(self, devices: Collection[int]) -> None:
        """After a failed call a device may still compute: its streams stay as they are until it is back, or the call
        that waits is interrupted."""
        for device in sorted(self._unsettled.intersection(devices)):
            while self._control.record(device, control_words.R_COMMAND_KIND) == control_words.CommandKind.RUN:
                if (reason := self._lost() or self.stop_reason()) is not None:
                    raise reason
                clock.sleep(SLICE_S / 10)
            self._unsettled.discard(device)

    def _records(self, devices: Collection[int]) -> Records:
        rows = {device: record_bytes(self._control.view, device) for device in devices}
        return Records(rows, self._control.devices)


__all__ = ["AttachedStreams"]
