"""A host in the process that made its memories: the driver's own, or in an agent another one."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from distxla import clock
from distxla.collectives.protocols import call_loops
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols.layout import packed
from distxla.collectives.transports.abort import abort
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.collectives.transports.shared_memory.transport import SharedMemory
from distxla.collectives.transports.transport import Restart, Transport
from distxla.errors import InternalError
from distxla.lazy_dataclass import dataclass
from distxla.machine.processes import is_stopped
from distxla.machine.segments import Segment
from distxla.program.artifact import CompiledProgram
from distxla.runtime.hosts.process_watch import Watch
from distxla.runtime.replica import serve
from distxla.runtime.replica.crash_frames import CrashFrames
from distxla.runtime.replica.replica import Attachment, Identity
from distxla.runtime.values.host import Lost, record_bytes
from distxla.targets.registry import load_image

GRACE_S = 3.0  # for devices to come back after the abort flag was set, before their processes are killed
MASK = 0xFFFFFFFF
_COMMAND = packed(
    control_words.R_COMMAND_KIND,
    control_words.R_COMMAND_PROGRAM,
    control_words.R_COMMAND_SEQUENCE,
    control_words.R_COMMAND_REPEAT,
)


@dataclass(frozen=True)
class Ticket:
    """A call in flight: the command's number, and the count of finished calls that ends it."""

    sequence: int
    target: int


class LocalHost:
    """Control block, device memories and replicas of one host, in the process that made them; see HostEnd.

    devices: flattened ids that live here, of `device_count` in the run.  transport: between them.  common: the memory
    that follows each device's own, of the same size.
    One call runs at a time; a host's methods may be called from several threads otherwise.
    """

    failure = damage = ""

    def __init__(self, index: int, name: str, devices: range, device_count: int, memory_bytes: int) -> None:
        self.index = index
        self.name = name
        self.devices = devices
        self.memory_bytes = memory_bytes
        self.control = ControlBlock.create(device_count, len(devices))
        self._commands = {
            device: self.control.row(_COMMAND, control_words.R_COMMAND_KIND, control_words.record_offset(device))
            for device in devices
        }
        self.transport: Transport = SharedMemory(self.control)
        self.common = Segment.create("distxla-common", memory_bytes)
        self._frames = CrashFrames.create(device_count)
        self.memories: dict[int, Segment] = {}
        self._watch: Watch | None = None  # None also once it is closed
        self._seen: Watch | None = None
        self._closing = False
        self._issued: tuple[Ticket, tuple[int, ...]] | None = None  # the last call, and its devices
        self._ending: Collection[int] = ()  # that are to come back from it
        self._restart: Restart | None = None
        self._at_trouble: dict[int, bytes] = {}  # records when another host reported a failure of the last call
        for device in devices:
            self.memories[device] = Segment.create(f"distxla-device-{device}", memory_bytes, self.common)

    def attachment(self, *, guarded: bool = False) -> Attachment:
        """What this host's replicas need to open the memories. guarded: they end when this process does."""
        count = self.control.devices
        memories = tuple(self.memories[d].descriptor if d in self.memories else None for d in range(count))
        block, frames, common = self.control.segment.descriptor, self._frames.descriptor, self.common.descriptor
        calls = (0,) * count
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
        self._call = serve.CALL_TYPE(self._image.address_of(call_loops.CALL))
        self._told = on_loss
        self._watch = self._seen = Watch(list(identities), self._frames.of, self._on_loss)

    @property
    def lost(self) -> dict[int, Lost]:
        """See HostEnd."""
        if self._seen is None or not self._seen.lost:
            return {}
        name = self.name if len(self.devices) < self.control.devices else ""
        lost, hows = self._seen.lost, self._seen.hows  # in this order: how a process ended is known before
        return {device: Lost(pid, name, how=hows.get(device, "")) for device, pid in lost.items()}

    def _on_loss(self, device: int, pid: int) -> None:
        """In the watch's thread: make every wait of the host return, and the one for the end of a call."""
        if not self._closing:
            abort(self.control, device)
            if self._told is not None:
                self._told(device, pid)

    # --- calls

    def issue(self, numbers: Mapping[int, int], repeat: int) -> Ticket:
        """Write the commands to run program numbers[device] on each of these devices; `wait` then starts them."""
        block = self.control
        sequence = (block.load_own(control_words.H_COMMAND) + 1) & MASK
        target = (block.load(control_words.H_DONE) + len(numbers)) & MASK
        ticket = Ticket(sequence, target)
        self._at_trouble = {}
        self._issued = ticket, tuple(numbers)  # first, so that an interrupt from here on withdraws the command
        for device, number in numbers.items():
            self._commands[device](control_words.CommandKind.RUN, number, sequence, repeat)
        block.store(control_words.H_DONE_TARGET, target)
        return ticket

    def take(self, ticket: Ticket, devices: Iterable[int]) -> None:
        """A call is in flight that `issue` has not begun; `wait` waits for it."""
        self._issued = ticket, tuple(devices)

    def start(self) -> None:
        """Start the call without waiting for its end."""
        self.wait(0)

    def wait(self, nanoseconds: int) -> int:
        """See HostEnd. Starts the last call that was issued if it is not in flight."""
        assert self._issued is not None
        ticket = self._issued[0]
        return int(self._call(self.control.segment.address, ticket.sequence, ticket.target, nanoseconds))

    @property
    def is_aborted(self) -> bool:
        return self.control.load(control_words.H_ABORT) != 0

    def abort(self) -> None:
        """Make every wait on this host return, and end the call in flight; does not wait."""
        abort(self.control)

    def alarm(self) -> None:
        """Another host has failed: end the call here, after copying the records of its devices."""
        if not self.is_aborted:
            self._at_trouble = self.records()
            self.abort()

    def begin_end(self, devices: Collection[int], *, patient: bool = False) -> None:
        """See HostEnd."""
        self._ending = devices
        self._withdraw()
        self.abort()

    def has_ended(self, seconds: float) -> bool:
        """See HostEnd."""
        return self.end(self._ending, patience=seconds)

    def finish_end(self) -> None:
        """See HostEnd."""
        self.end(self._ending)

    def still_there(self) -> dict[int, bytes]:
        """See HostEnd."""
        rows = self.records()
        return {device: rows[device] for device in self._ending if self._is_busy(device)}

    def begin_clear(self, restart: Restart) -> None:
        """See HostEnd."""
        self._restart = restart

    def finish_clear(self) -> None:
        """See HostEnd."""
        assert self._restart is not None
        self.transport.reset(self._restart)

    def end(self, devices: Collection[int], *, patience: float | None = None) -> bool:
        """Abort, and get these devices back, by force where they do not come; the abort flag stays set.

        patience: seconds after which devices that still compute are left to go on: False then, and none is killed.
        Where all are back, their later writes don't count for a later call.
        """
        self._withdraw()
        self.abort()
        end = clock.now() + (GRACE_S if patience is None else patience)
        killed = False
        while True:
            self.transport.release()
            lost = self.lost
            busy = [d for d in devices if d not in lost and self._is_busy(d)]
            # a device counts itself last of all: if the next call began before it did, that would end one too early
            if not busy and (lost or self._all_have_counted()):
                return True
            if clock.now() > end:
                if patience is not None:
                    return False
                if killed:
                    raise InternalError(f"devices {busy} do not end")
                assert self._watch is not None
                for device in busy:
                    self._watch.kill(device)
                killed, end = True, clock.now() + GRACE_S
            clock.sleep(0.001)

    def allow(self) -> None:
        """Clear the abort flag: calls may be issued again."""
        self.control.store(control_words.H_ABORT, 0)

    def stop(self) -> None:
        """Tell all replicas to leave their serve loop; does not wait."""
        if self._watch is None:
            return
        sequence = (self.control.load_own(control_words.H_COMMAND) + 1) & MASK
        for device in self.devices:
            self._command(device, control_words.CommandKind.STOP, sequence)
        self._call(self.control.segment.address, sequence, self.control.load(control_words.H_DONE), 0)

    def _withdraw(self) -> None:
        """Take a call back that was issued and not started: an interrupt came in between."""
        newest = self.control.load_own(control_words.H_COMMAND)
        if self._issued is None or newest == self._issued[0].sequence:
            return
        for device in self._issued[1]:
            self._command(device, control_words.CommandKind.NONE, (newest - 1) & MASK)  # unissued
        self._issued = None

    def _command(self, device: int, kind: control_words.CommandKind, sequence: int) -> None:
        """Write a device's command, before H_COMMAND publishes it."""
        record = control_words.record_offset(device)
        self.control.reset(control_words.R_COMMAND_KIND, kind, record)
        self.control.reset(control_words.R_COMMAND_SEQUENCE, sequence, record)

    def _all_have_counted(self) -> bool:
        """Whether H_DONE has reached its value at the end of the last call."""
        if self._issued is None:
            return True
        return self.control.load(control_words.H_DONE) == self._issued[0].target

    def _is_busy(self, device: int) -> bool:
        return self.control.record(device, control_words.R_COMMAND_KIND) == control_words.CommandKind.RUN

    # --- state of devices

    def begin_records(self) -> int:
        """See HostEnd."""
        return 0

    def records(self, expected: int | None = None) -> dict[int, bytes]:
        """See HostEnd; R_IS_STOPPED is among the records."""
        if expected is not None and self._at_trouble:
            return self._at_trouble
        found = {device: record_bytes(self.control.view, device) for device in self.devices}
        for device, row in found.items():
            if is_stopped(self.control.record(device, control_words.R_PID)):
                at = control_words.R_IS_STOPPED
                found[device] = row[:at] + (1).to_bytes(4, "little") + row[at + 4 :]
        return found

    def run_ns(self, device: int) -> int:
        """See HostEnd."""
        return self.control.record(device, control_words.R_RUN_NS)

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

    def kill(self) -> None:
        """End all replicas' processes at once."""
        if self._watch is not None:
            for device in self.devices:
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
