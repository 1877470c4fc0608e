"""The Ray actor of one device: opens memory, loads programs, and lets native code serve the driver's commands.

It imports neither LLVM nor Ray at module level, nor the modules of faults and custom-calls, which few programs need. So
it stays small: a replica is the worker process, NumPy, and code.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any

from distxla.collectives.protocols import call_loops
from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.transports.control_block_view import ControlBlock
from distxla.errors import ClusterError
from distxla.lazy_dataclass import dataclass
from distxla.machine.fault_signals import note_faults, own_signal_stack
from distxla.machine.memory_limits import own_bytes
from distxla.machine.processes import descriptor_of, readable
from distxla.machine.segments import Segment
from distxla.program.abi import COMMUNICATE_SYMBOL, ENTRY_SYMBOL
from distxla.program.artifact import CompiledProgram
from distxla.program.execution_context import ExecutionContext
from distxla.runtime.replica import serve
from distxla.runtime.replica.crash_frames import write_frames_at_crashes
from distxla.runtime.values.shared_image import ImageSource, load_shared
from distxla.targets.local_rank import LocalRank

if TYPE_CHECKING:
    from distxla.runtime.injection.faults import Fault
    from distxla.runtime.injection.hook import Injector
    from distxla.runtime.replica.user_functions import RoutineFailure, Routines

PROGRAMS_BYTES = call_loops.MOST_PROGRAMS * call_loops.PROGRAM_ENTRY_BYTES  # of address space


@dataclass(frozen=True)
class Attachment:
    """Access for a replica to its host's memory: descriptors of the process that made it.

    owner: that process, the driver or an agent.  memories: by flattened id, None for devices on other hosts.
    frames: where the frames of replicas go that a signal ends (crash_frames.py).  common: the memory that follows each
    device's.  memory_bytes: of any of these.  calls: by flattened id, where the header of its slice is in the
    control block.
    guarded: whether the replica ends itself when the owner has ended.
    """

    owner: int
    control: int
    frames: int
    memories: tuple[int | None, ...]
    common: int
    memory_bytes: int
    calls: tuple[int, ...]
    guarded: bool = False


@dataclass(frozen=True)
class Placement:
    """Where a program finds things on one device. Offsets in the control block, but for `arena`.

    communicators: state of this device's group by communicator, None where the device is in no group.
    shared: where this device's group has each of the program's shared arenas, 0 where nowhere; in device memory.
    """

    number: int
    arena: int
    parameters: int
    results: int
    communicators: tuple[int | None, ...]
    shared: tuple[int, ...] = ()


@dataclass(frozen=True)
class Identity:
    """The identity of a replica."""

    device: int
    host: str
    pid: int
    resident_bytes: int


class Replica:
    """A device. Methods are called through Ray, one at a time; programs run in a native thread of their own."""

    def __init__(self, device: int, local: LocalRank) -> None:
        self._device, self._local = device, local
        self._programs = mmap.mmap(-1, PROGRAMS_BYTES)
        self._programs_address = ctypes.addressof(ctypes.c_char.from_buffer(self._programs))
        self._loaded: dict[int, tuple[Any, ...]] = {}
        self._routine_failure: RoutineFailure | None = None
        self._injector: Injector | None = None

    def attach(self, attachment: Attachment, support: CompiledProgram, image: ImageSource) -> Identity:
        """Map the memories and begin to serve. image: of `support`.

        ClusterError where the host's memory cannot be opened.
        """
        count = len(attachment.memories)
        self._attachment = attachment
        if attachment.guarded:
            _end_with(attachment.owner)
        self._control = ControlBlock.open(attachment.owner, attachment.control, count)
        owner, size = attachment.owner, attachment.memory_bytes
        self._memories = [
            None if descriptor is None else Segment.open(owner, descriptor, size, (attachment.common, size))
            for descriptor in attachment.memories
        ]
        self._record = self._control.segment.address + control_words.record_offset(self._device)
        self._call = self._control.segment.address + attachment.calls[self._device]
        self._control.store(control_words.R_PID, os.getpid(), control_words.record_offset(self._device))
        self._support = load_shared(support, image)
        ctypes.c_void_p.from_address(self._support.address_of(call_loops.FAULT_RECORD)).value = self._record
        write_frames_at_crashes(owner, attachment.frames, count, self._device)
        note_faults(*map(self._support.address_of, (call_loops.FAULT, call_loops.FAULT_NEXT)))
        loop = serve.SERVE_TYPE(self._support.address_of(call_loops.SERVE))
        seen = self._control.load(control_words.H_COMMAND, attachment.calls[self._device])
        arguments = (self._call, self._record, self._programs_address, seen)
        threading.Thread(target=_serve, args=(loop, arguments), name="serve", daemon=True).start()
        return Identity(self._device, socket.gethostname(), os.getpid(), self.resident_bytes())

    def inject(self, faults: tuple[Fault, ...]) -> None:
        """Carry out these faults in the programs that are loaded from now on."""
        from distxla.runtime.injection.hook import Injector

        self._injector = Injector(
            self._device, self._control, self._attachment.calls[self._device], self._attachment.owner, faults
        )

    def load(
        self, program: CompiledProgram, source: ImageSource, placement: Placement, routines: Routines | None = None
    ) -> None:
        """Make a program ready to be run by its number.

        source: its image.  routines: those that its custom-calls need, if any. Raises ArgumentError for one that can't
        be had here.
        """
        loaded, callbacks = None, {}
        if routines is not None:
            from distxla.runtime.replica.user_functions import LoadedRoutines

            memory = self._memories[self._device]
            assert memory is not None
            loaded = LoadedRoutines(routines, self._device, memory.address, memory.bytes.nbytes, self._note)
            callbacks = {site.index: loaded.callback(site) for site in program.sites if site.routine is not None}
        image = load_shared(
            program, source, loaded.resolve if loaded is not None else None, self._note_kernel, self._local
        )
        base = self._control.segment.address
        context = ExecutionContext(
            self._device,
            [None if memory is None else memory.address for memory in self._memories],
            partitions=program.counts.partitions,
            control=base,
            call=self._call,
            record=self._record,
            arena=placement.arena,
            parameters=base + placement.parameters,
            results=base + placement.results,
            routines=[
                ctypes.cast(callbacks[site.index], ctypes.c_void_p).value
                if site.index in callbacks
                else image.address_of(COMMUNICATE_SYMBOL.format(site=site.index))
                for site in program.sites
            ],
            communicators=[None if offset is None else base + offset for offset in placement.communicators],
            shared=placement.shared,
            assignment=program.assignment,
        )
        hook = None
        if self._injector is not None and program.points:
            hook = self._injector.hook(program.points)
            context.context.inject = ctypes.cast(hook, ctypes.c_void_p).value
        self._loaded[placement.number] = (image, context, loaded, callbacks, hook)
        row = self._row(placement.number)
        row[0], row[1] = image.address_of(ENTRY_SYMBOL), context.address

    def unload(self, number: int) -> None:
        """Unmap a program that is not run any more; does nothing if it is not loaded."""
        loaded = self._loaded.pop(number, None)
        if loaded is not None:
            row = self._row(number)
            row[0] = row[1] = None
            loaded[0].close()
            if loaded[2] is not None:
                loaded[2].close()

    def _row(self, number: int) -> ctypes.Array[ctypes.c_void_p]:
        """A row of the table of programs that native code reads."""
        return (ctypes.c_void_p * 2).from_buffer(self._programs, number * call_loops.PROGRAM_ENTRY_BYTES)

    def routine_failure(self) -> RoutineFailure | None:
        """The error of the Python routine that failed last; None if none did."""
        return self._routine_failure

    def _note(self, failure: RoutineFailure) -> None:
        self._routine_failure = failure

    def _note_kernel(self, summary: str, frames: str) -> None:
        """A kernel that this process interprets has failed."""
        from distxla.runtime.replica.user_functions import RoutineFailure

        self._routine_failure = RoutineFailure(-1, summary, frames)

    def resident_bytes(self) -> int:
        """Resident memory of this process without memory that it shares with others: the arenas."""
        return own_bytes()

    def node(self) -> str:
        """The Ray node that this process is on."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def imported(self) -> list[str]:
        """Names of the modules that this process has imported."""
        return sorted(sys.modules)


def _end_with(owner: int) -> None:
    """End this process, at once, when the process `owner` has ended: no other process would release its waits."""
    try:
        descriptor = descriptor_of(owner)
    except OSError as error:
        raise ClusterError(f"process {owner}, which holds this host's memory, has ended") from error

    def watch() -> None:
        readable(descriptor)
        os._exit(1)

    threading.Thread(target=watch, name="guard", daemon=True).start()


def _serve(loop: Any, arguments: tuple[Any, ...]) -> None:
    """The thread in which programs run."""
    stack = own_signal_stack()
    loop(*arguments)
    del stack
