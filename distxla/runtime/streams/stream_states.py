"""Streams whose ends on the host other processes have: each the ends of its own devices."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from distxla.collectives.protocols import control_block as control_words
from distxla.errors import ArgumentError, ClusterError, DistxlaError, StreamEndError
from distxla.ir.stream_key import StreamKey
from distxla.program.abi import Status
from distxla.program.artifact import CompiledProgram
from distxla.runtime.streams.streams import ClusterStreams, Infeed, Outfeed
from distxla.runtime.values.host import Records

StreamPlace = tuple[int, str, int]
"""Device, the code of a stream's key, and the offset of the stream's state in the control block."""


class StreamStates(ClusterStreams):
    """The states of a cluster's streams. Programs are loaded and fail here; no item is put or taken."""

    def infeed(self, device: int, channel: int | None = None) -> Infeed:
        raise self._elsewhere(device)

    def outfeed(self, device: int, channel: int | None = None) -> Outfeed:
        raise self._elsewhere(device)

    @staticmethod
    def _elsewhere(device: int) -> ClusterError:
        return ClusterError(f"the streams of device {device} belong to the process that uses the device")

    def load(self, number: int, program: CompiledProgram, devices: Collection[int]) -> None:
        """A program was given its number. Its processes make room for their items."""
        self._programs[number] = program

    def places(self, program: CompiledProgram, devices: Iterable[int]) -> list[StreamPlace]:
        """Where the states of a program's streams are, for the processes that have the ends."""
        keys = dict.fromkeys(spec.stream for spec in program.communicators if spec.stream is not None)
        return [(device, key.code, self.place(device, key)) for device in devices for key in keys]

    def _make(self, device: int, key: StreamKey) -> int:
        with self._lock:
            if self._closed:
                raise ClusterError("the cluster is closed")
            if (device, key) not in self._states:
                self._states[device, key] = self._new_state(device, key)
            return self._states[device, key]

    def _failure_of(self, device: int, status: int, records: Records) -> DistxlaError:
        """As an end tells it, but for what only the end knows: which types it has put."""
        site, key = self._site(device, records)
        where = f"{site.instruction} on device {device}"
        number = records.record_long(device, control_words.R_ROUND)
        if status == Status.STREAM_ENDED:
            return StreamEndError(f"{where} wants item {number}: the {key} was closed before it", site.location)
        assert site.item is not None
        expected = site.item.without_layout()
        return ArgumentError(
            f"{where}: item {number} of the {key}: expected {expected}, found another type", site.location
        )


__all__ = ["StreamPlace", "StreamStates"]
