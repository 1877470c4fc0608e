"""A host in the process that made its memories: the driver's own, or in an agent another one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from distxla.collectives.protocols import call_loops
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.transports.abort import abort
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.collectives.transports.transport import Transport
from distxla.errors import InternalError
from distxla.machine.processes import is_stopped
from distxla.machine.segments import Segment
from distxla.program.artifact import CompiledProgram
from distxla.runtime.hosts.process_watch import Watch
from distxla.runtime.hosts.slice import Slice
from distxla.runtime.replica import serve
from distxla.runtime.replica.crash_frames import CrashFrames
from distxla.runtime.replica.replica import Attachment, Identity
from distxla.runtime.values.host import Lost, record_bytes
from distxla.targets.registry import load_image


class LocalHost:
    """Control block, device memories and replicas of one host, in the process that made them.

    devices: flattened ids that live here, of `device_count` in the run.  common: the memory that follows each device's
    own, of the same size.  slices: the devices in parts, each of which has calls of its own.
    A host's methods may be called from several threads.
    """

    def __init__(
        self,
        index: int,
        name: str,
        devices: range,
        device_count: int,
        memory_bytes: int,
        slices: Sequence[range] = (),
    ) -> None:
        """slices: parts of `devices` that have calls of their own; none: all devices are called together."""
        self.index = index
        self.name = name
        self.devices = devices
        self.memory_bytes = memory_bytes
        self.control = ControlBlock.create(device_count, len(devices))
        offsets = [self.control.carve_header() for _ in slices] if len(slices) > 1 else [0]
        self.slices = [Slice(self, part, at) for part, at in zip(slices if len(slices) > 1 else [devices], offsets)]
        self.common = Segment.create("distxla-common", memory_bytes)
        self._frames = CrashFrames.create(device_count)
        self.memories: dict[int, Segment] = {}
        self._watch: Watch | None = None  # None also once it is closed
        self._seen: Watch | None = None
        self._closing = False
        for device in devices:
            self.memories[device] = Segment.create(f"distxla-device-{device}", memory_bytes, self.common)

    @property
    def calls(self) -> Slice:
        """The slice of all devices. InternalError where there are several."""
        if len(self.slices) > 1:
            raise InternalError("a call for all devices of a host whose devices are called in slices")
        return self.slices[0]

    @property
    def transport(self) -> Transport:
        """Between the devices, as `calls`."""
        return self.calls.transport

    def attachment(self, *, guarded: bool = False) -> Attachment:
        """What this host's replicas need to open the memories. guarded: they end when this process does."""
        count = self.control.devices
        memories = tuple(self.memories[d].descriptor if d in self.memories else None for d in range(count))
        block, frames, common = self.control.segment.descriptor, self._frames.descriptor, self.common.descriptor
        headers = {device: part.offset for part in self.slices for device in part.devices}
        calls = tuple(headers.get(device, 0) for device in range(count))
        return Attachment(os.getpid(), block, frames, memories, common, self.memory_bytes, calls, guarded)

    def begin(
        self,
        support: CompiledProgram,
        identities: Sequence[Identity],
        on_loss: Callable[[int, int], None] | None = None,
    ) -> None:
        """The replicas serve: watch them, and be ready to issue calls.

        on_loss: gets device and pid of a replica that has ended, in a thread of its own, after all waits were aborted.
        """
        self._image = load_image(support)
        call = serve.CALL_TYPE(self._image.address_of(call_loops.CALL))
        for part in self.slices:
            part.native_call = call
        self._told = on_loss
        self._watch = self._seen = Watch(list(identities), self._frames.of, self._on_loss)

    @property
    def lost(self) -> dict[int, Lost]:
        """The replicas that have ended until now, by device."""
        if self._seen is None or not self._seen.lost:
            return {}
        name = self.name if len(self.devices) < self.control.devices else ""
        lost, hows = self._seen.lost, self._seen.hows  # in this order: how a process ended is known before
        return {device: Lost(pid, name, how=hows.get(device, "")) for device, pid in lost.items()}

    def _on_loss(self, device: int, pid: int) -> None:
        """In the watch's thread: make every wait of the host return, and the one for the end of a call."""
        if not self._closing:
            for part in self.slices:
                abort(self.control, device, part.offset)
            if self._told is not None:
                self._told(device, pid)

    # --- state of devices

    def records(self) -> dict[int, bytes]:
        """The records of all devices; R_IS_STOPPED is among them."""
        return self.records_of(self.devices)

    def records_of(self, devices: Iterable[int]) -> dict[int, bytes]:
        """As `records`, of these devices."""
        found = {device: record_bytes(self.control.view, device) for device in devices}
        for device, row in found.items():
            if is_stopped(self.control.record(device, control_words.R_PID)):
                at = control_words.R_IS_STOPPED
                found[device] = row[:at] + (1).to_bytes(4, "little") + row[at + 4 :]
        return found

    # --- memory

    def resident_bytes(self) -> int:
        """Memory that the devices have touched."""
        return sum(segment.resident_bytes() for segment in (self.common, *self.memories.values()))

    def control_write(self, offset: int, data: bytes) -> None:
        """See Host."""
        if len(data) == 4 and self._is_word(offset):
            self.control.atomics.publish(self.control.address + offset, int.from_bytes(data, "little"))
        else:
            self.control.view[offset : offset + len(data)] = data

    def _is_word(self, offset: int) -> bool:
        """Whether the offset is that of an aligned u32 of the control block."""
        return offset % 4 == 0 and 0 <= offset <= self.control.segment.size - 4

    def control_zero(self, offset: int, size: int) -> None:
        """See Host."""
        self.control.segment.bytes[offset : offset + size] = 0

    def control_read(self, offset: int, size: int, seconds: float | None = None) -> bytes:
        """See Host; does not block."""
        if size == 4 and self._is_word(offset):
            return self.control.load_at(offset).to_bytes(4, "little")
        return bytes(self.control.view[offset : offset + size])

    # --- the end

    def stop(self) -> None:
        """Tell all replicas to leave their serve loop; does not wait."""
        if self._watch is not None:
            for part in self.slices:
                part.stop()

    def kill(self, devices: Iterable[int] | None = None) -> None:
        """End the processes of these devices' replicas at once: of all by default."""
        if self._watch is not None:
            for device in self.devices if devices is None else devices:
                self._watch.kill(device)

    def kill_processes(self) -> None:
        """Stop watching and kill the replicas' processes; does not wait until they are gone."""
        self._closing = True
        if self._watch is not None:
            self._watch.kill_all()

    def close_processes(self, grace: float = 2.5) -> None:
        """Stop watching; blocks until the replicas' processes are gone, killing those that stay. Twice is fine.

        grace: seconds that they have to end as Ray tells them to.
        """
        self._closing = True
        if self._watch is not None:
            self._watch.close(grace)
            self._watch = None
            self._image.close()

    def close(self) -> None:
        """Give the memories back; arrays over device memory stay valid. Twice is fine."""
        self.close_processes()
        for memory in self.memories.values():
            memory.close()
        self.common.close()
        self._frames.close()
        if self.memories or self.control.segment.descriptor >= 0:
            self.control.close()
        self.memories = {}
