"""Devices of a host whose calls are issued together, one after the other: all of the host's, or those of one of several
processes, whose calls run beside those of the other slices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from distxla import clock
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols.layout import packed
from distxla.collectives.transports.abort import abort
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.collectives.transports.shared_memory.transport import SharedMemory
from distxla.collectives.transports.transport import Restart
from distxla.errors import InternalError
from distxla.lazy_dataclass import dataclass
from distxla.runtime.values.host import Host, Lost
from distxla.targets.registry import wake_all

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


class SlicedHost(Host, Protocol):
    """The host of slices, in the process that made its memories."""

    control: ControlBlock

    @property
    def lost(self) -> Mapping[int, Lost]:
        """The replicas that have ended until now, by device."""

    def kill(self, devices: Iterable[int]) -> None:
        """End the processes of these devices' replicas at once."""

    def records_of(self, devices: Iterable[int]) -> dict[int, bytes]:
        """The devices' records as they are; R_IS_STOPPED is among them."""


class Slice:
    """The devices of a slice as calls see them; see HostEnd. offset: where its header is in the control block.

    address: of the header.  transport: between devices of this slice, and to others of the host.
    One call runs at a time on a slice; its methods may be called from several threads otherwise.
    """

    failure = damage = ""

    def __init__(self, host: SlicedHost, devices: range, offset: int) -> None:
        """offset: of a header whose H_CORES and H_HERE are written."""
        self._host = host
        self.index, self.name, self.devices = host.index, host.name, devices
        self.control, self.offset = host.control, offset
        self.address = self.control.address + offset
        self.transport = SharedMemory(self.control, devices, offset)
        self.native_call: Callable[[int, int, int, int], int] | None = None  # once the replicas serve
        self._commands = {
            device: self.control.row(_COMMAND, control_words.R_COMMAND_KIND, control_words.record_offset(device))
            for device in devices
        }
        self._issued: tuple[Ticket, tuple[int, ...]] | None = None  # the last call, and its devices
        self._ending: Collection[int] = ()  # that are to come back from it
        self._restart: Restart | None = None
        self._at_trouble: dict[int, bytes] = {}  # records when another host reported a failure of the last call

    @property
    def lost(self) -> Mapping[int, Lost]:
        """See HostEnd; of the whole host: where a replica has ended, no slice can be used any more."""
        return self._host.lost

    # --- calls

    def issue(self, numbers: Mapping[int, int], repeat: int) -> Ticket:
        """Write the commands to run program numbers[device] on each of these devices; `wait` then starts them."""
        block = self.control
        # a header of a slice is also written by the process that has the devices
        load = block.load if self.offset else block.load_own
        sequence = (load(control_words.H_COMMAND, self.offset) + 1) & MASK
        target = (block.load(control_words.H_DONE, self.offset) + len(numbers)) & MASK
        ticket = Ticket(sequence, target)
        self._at_trouble = {}
        self._issued = ticket, tuple(numbers)  # first, so that an interrupt from here on withdraws the command
        for device, number in numbers.items():
            self._commands[device](control_words.CommandKind.RUN, number, sequence, repeat)
        block.store(control_words.H_DONE_TARGET, target, self.offset)
        return ticket

    def take(self, ticket: Ticket, devices: Iterable[int]) -> None:
        """A call is in flight that `issue` has not begun; `wait` waits for it."""
        self._issued = ticket, tuple(devices)

    def start(self) -> None:
        """Start the last call that was issued or taken, unless it is in flight, without waiting for its end."""
        assert self._issued is not None
        # waits until as many are done as are done already: that is at once
        self._call(self._issued[0].sequence, self.control.load(control_words.H_DONE, self.offset), 0)

    def wake(self) -> None:
        """Wake the devices for the call that was taken: who has started it may have ended before that."""
        wake_all(self.address + control_words.H_COMMAND)

    def wait(self, nanoseconds: int) -> int:
        """See HostEnd. Starts the last call that was issued if it is not in flight."""
        assert self._issued is not None
        assert self.native_call is not None
        ticket = self._issued[0]
        return int(self.native_call(self.address, ticket.sequence, ticket.target, nanoseconds))

    def _call(self, sequence: int, target: int, nanoseconds: int) -> int:
        assert self.native_call is not None
        return int(self.native_call(self.address, sequence, target, nanoseconds))

    @property
    def is_aborted(self) -> bool:
        return self.control.load(control_words.H_ABORT, self.offset) != 0

    def abort(self) -> None:
        """Make every wait of these devices return, and end the call in flight; does not wait."""
        abort(self.control, call=self.offset)

    def alarm(self) -> None:
        """Another host has failed: end the call here, after copying the records of its devices."""
        if not self.is_aborted:
            self._at_trouble = self.records()
            self.abort()

    def run_ns(self, device: int) -> int:
        """See HostEnd."""
        return self.control.record(device, control_words.R_RUN_NS)

    def stop(self) -> None:
        """Tell the replicas to leave their serve loop; does not wait."""
        sequence = (self.control.load(control_words.H_COMMAND, self.offset) + 1) & MASK
        for device in self.devices:
            self._command(device, control_words.CommandKind.STOP, sequence)
        self._call(sequence, self.control.load(control_words.H_DONE, self.offset), 0)

    # --- calls of a process that issues them itself

    @property
    def is_held(self) -> bool:
        """Whether the process of these devices issues nothing."""
        return self.control.load(control_words.H_HOLD, self.offset) != 0

    def hold(self) -> None:
        """The process of these devices issues no further call until `let_go`. What it has issued until now, its log
        shows to those who read that after this has returned."""
        self.control.store(control_words.H_HOLD, 1, self.offset)
        self.control.fence()

    def let_go(self) -> None:
        """The process may issue calls."""
        self.control.store(control_words.H_HOLD, 0, self.offset)

    def withdraw_unstarted(self) -> None:
        """Take back the commands of a call that the process of these devices has issued and that nobody has started or
        will start; the process is held, or has ended."""
        newest = self.control.load(control_words.H_COMMAND, self.offset)
        for device in self.devices:
            issued = self.control.record(device, control_words.R_COMMAND_SEQUENCE)
            if self._is_busy(device) and issued == (newest + 1) & MASK:
                self._command(device, control_words.CommandKind.NONE, (newest - 1) & MASK)

    # --- the end of a call that has failed

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
                self._host.kill(busy)
                killed, end = True, clock.now() + GRACE_S
            clock.sleep(0.001)

    def allow(self) -> None:
        """Clear the abort flag: calls may be issued again."""
        if self._issued is not None:  # it tells who finds its devices back that they have failed
            self.control.store(control_words.H_FAILED, self._issued[0].sequence, self.offset)
        self.control.store(control_words.H_ABORT, 0, self.offset)

    def _withdraw(self) -> None:
        """Take a call back that was issued and not started: an interrupt came in between. One behind which the process
        of these devices has issued others was over."""
        newest = self.control.load(control_words.H_COMMAND, self.offset)
        if self._issued is None or newest == self._issued[0].sequence:
            return
        if (newest + 1) & MASK == self._issued[0].sequence:
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
        return self.control.load(control_words.H_DONE, self.offset) == self._issued[0].target

    def _is_busy(self, device: int) -> bool:
        return self.control.record(device, control_words.R_COMMAND_KIND) == control_words.CommandKind.RUN

    # --- state of devices

    def begin_records(self) -> int:
        """See HostEnd."""
        return 0

    def records(self, expected: int | None = None) -> dict[int, bytes]:
        """See HostEnd; also those of replicas of the host that have ended."""
        if expected is not None and self._at_trouble:
            return self._at_trouble
        return self._host.records_of([*self.devices, *(device for device in self.lost if device not in self.devices)])

    # --- the control block

    def control_write(self, offset: int, data: bytes) -> None:
        """See Host."""
        self._host.control_write(offset, data)

    def control_zero(self, offset: int, size: int) -> None:
        """See Host."""
        self._host.control_zero(offset, size)

    def control_read(self, offset: int, size: int, seconds: float | None = None) -> bytes:
        """See Host; does not block."""
        return self._host.control_read(offset, size, seconds)


__all__ = ["MASK", "Slice", "Ticket"]
