"""Plans of calls that native code issues (native_calls.py), and the end of those that it leaves to the call queue."""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from distxla.errors import OutOfMemoryError
from distxla.ir.element_type import TOKEN
from distxla.jax.pjrt import events
from distxla.jax.pjrt.devices import Device, Memory
from distxla.jax.pjrt.handles import CArray
from distxla.jax.pjrt.native_functions import native_functions
from distxla.jax.pjrt.native_gate import WATCH_LATE, WATCH_LEFT
from distxla.jax.pjrt.native_module import GATE_LEFT
from distxla.jax.pjrt.shape_constants import Constants
from distxla.jax.pjrt.table import RECORDS, STATES, offset
from distxla.machine.heap import Block
from distxla.machine.mappings import PAGE
from distxla.machine.segments import Segment
from distxla.runtime.arrays.call_queue import PendingCall
from distxla.runtime.arrays.device_cluster import DeviceCluster, DirectCall, DirectPlace
from distxla.runtime.arrays.executable import Executable
from distxla.runtime.arrays.result_blocks import ResultBlocks
from distxla.targets.registry import wake_all

MOST_BYTES: Final = 4 << 20  # of a call's results on each device; programs with larger ones gain nothing here
_ADDED_BYTES: Final = 1 << 20  # by which a plan's blocks grow at once, but for a single call
_KEPT_BYTES: Final = 64 << 20  # of the blocks of all plans; where they are more, those that are free are given back
_BLOCK: Final = STATES["Block"]
_BUFFER: Final = RECORDS["Buffer"]


class NativeBlock:
    """Memory of one result that Python has taken over from native code; as a `Block` of the heap. is_taken: whether it
    is Python's to release."""

    __slots__ = ("_gate", "_record", "_release", "is_taken", "offset", "size")

    def __init__(self, gate: int, record: int, size: int) -> None:
        self.is_taken = False
        self._gate = gate
        self._record = record
        self._release = native_functions().block_release
        self.offset = int(_BLOCK.from_address(record).offset)
        self.size = size

    def __del__(self) -> None:
        if getattr(self, "is_taken", False):  # an interrupt may come before everything else
            self.is_taken = False
            self._release(self._gate, self._record)


class Plan:
    """What native code reads of an executable. address: of the record.  devices, name: the executable's.  place: where
    its calls are written."""

    def __init__(
        self,
        issuer: DirectIssuer,
        place: DirectPlace,
        devices: Sequence[Device],
        parameters: Sequence[Constants],
        results: Sequence[Constants],
        kinds: Sequence[int],
        blocks: ResultBlocks,
        donated: frozenset[int],
        name: str,
    ) -> None:
        self.devices = tuple(device.id for device in devices)
        self.name = name
        self._issuer = issuer
        self.place = place
        layout = blocks.layout()
        self.bytes = layout.bytes
        self._sizes = layout.sizes
        self._count = 0  # of blocks of each kind
        # by address of the record; None where it was given up a moment ago
        self._blocks: dict[int, tuple[Any, Block] | None] = {}
        self._free, self._trimmed = (CArray(ctypes.c_uint64, [0] * len(layout.sizes)) for _ in range(2))
        uses = [sum(number == k for number, _ in layout.places) * len(devices) for k in range(len(layout.sizes))]
        made = (_BUFFER * max(1, len(devices) * len(results)))()
        for number, (device, k) in enumerate((d, k) for d in devices for k in range(len(results))):
            made[number] = _model(results[k], device.memories[kinds[k]], layout.places[k][1])
        self._kept = {
            "handles": CArray(ctypes.c_void_p, [device.handle for device in devices]),
            "dims": CArray(ctypes.c_void_p, [constants.dims.address for constants in parameters]),
            "donated": CArray(ctypes.c_uint8, [k in donated for k in range(len(parameters))]),
            "records": CArray(ctypes.c_void_p, place.records),
            "areas": CArray(ctypes.c_void_p, place.rows),
            "numbers": CArray(ctypes.c_uint32, [number for number, _ in layout.places]),
            "free": self._free,
            "uses": CArray(ctypes.c_uint32, uses),
        }
        self._made = made
        self._record = STATES["Plan"](
            devices=len(devices),
            arguments=len(parameters),
            results=len(results),
            blocks=len(layout.sizes),
            number=place.number,
            program=place.program,
            has_donated=bool(donated),
            gate=issuer.gate,
            launch=place.launch or None,
            start=native_functions().launches.start if place.launch else None,
            made=ctypes.addressof(made),
            **{field: array.address for field, array in self._kept.items()},
        )
        self.address = ctypes.addressof(self._record)

    def grow(self, cluster: DeviceCluster) -> None:
        """Give the plan blocks for some more calls, if there is memory; twice as many each time."""
        count = max(1, min(self._count, _ADDED_BYTES // max(1, self.bytes)))
        try:
            for _ in range(count):
                for k, size in enumerate(self._sizes):
                    self._add(cluster.heap.allocate(size, self.devices), self._free.address + 8 * k)
                self._count += 1
        except OutOfMemoryError:
            return

    def _add(self, block: Block, place: int) -> None:
        record = _BLOCK(uses=1, free=place, offset=block.offset)
        address = ctypes.addressof(record)
        try:
            self._blocks[address] = record, block
            native_functions().block_release(self._issuer.gate, address)
        except BaseException:
            if record.uses:  # native code does not know it
                self._blocks.pop(address, None)
            raise

    def trim(self, keep: Callable[[list[Block]], object]) -> bool:
        """Take the blocks that are free; none until the last call is over. Whether there were any. keep: gets them.

        What an interrupt has left in `_trimmed`, the next call takes.
        """
        trimmed = (ctypes.c_uint64 * len(self._sizes)).from_address(self._trimmed.address)
        has_any = False
        for k in range(len(self._sizes)):
            native_functions().gate_trim(self._issuer.gate, self._free.address + 8 * k, self._trimmed.address + 8 * k)
            while address := trimmed[k]:
                found = self._blocks[address]
                if found is not None:
                    has_any = True
                    record, block = found
                    keep([block])
                    trimmed[k], self._blocks[address] = record.next or 0, None
                self._blocks.pop(address, None)
        for address in [address for address, found in list(self._blocks.items()) if found is None]:
            self._blocks.pop(address, None)
        self._count = min(self._count, len(self._blocks))
        return has_any

    @property
    def held_bytes(self) -> int:
        """Of its blocks, on each device."""
        return self._count * self.bytes

    @property
    def is_short(self) -> bool:
        """Whether there are not all blocks for another call."""
        free = (ctypes.c_uint64 * len(self._sizes)).from_address(self._free.address)
        return not all(free)

    @property
    def is_empty(self) -> bool:
        """Whether it has no blocks at all."""
        return not self._blocks


def _model(constants: Constants, memory: Memory, place: int) -> ctypes.Structure:
    """The record of a result, whose place counts from its block's begin."""
    found = _BUFFER(
        type=constants.number,
        is_on_cpu=True,
        offset=place,
        dims=constants.dims.address,
        num_dims=constants.dims.size,
        size=constants.size,
        device=memory.device.handle,
        memory=memory.handle,
        pointer=memory.device.address(),
        is_native=True,
    )
    assert isinstance(found, ctypes.Structure)
    return found


class DirectIssuer:
    """Native calls of a cluster, as its call queue sees them. gate: the address of the record."""

    def __init__(self, cluster: DeviceCluster) -> None:
        """The cluster's devices serve."""
        self._cluster = cluster
        self._native = native_functions()
        self._gate = STATES["Gate"](main=threading.main_thread().ident, control=cluster.direct.control)
        self.gate = ctypes.addressof(self._gate)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))  # C++ destroys buffers when Python's modules are gone
        self._plans: dict[int, Plan] = {}
        self._dropped: set[int] = set()  # those of executables that are gone
        self._trimming = threading.Lock()
        self._taken: dict[int, PendingCall] = {}  # by number: calls in flight that became the queue's, or failed ones
        self._held: deque[tuple[int, object]] = deque()
        self._lock = threading.RLock()  # of taking from it, amid which a collection may give up arrays, and comes here
        cluster.direct.use(self.gate, self._native, self.hold)
        os.register_at_fork(after_in_child=self._leave)
        events.takers[self.gate] = cluster.queue.take_direct
        cluster.queue.direct = self
        cluster.heap.reclaim = self.trim
        self._thread = threading.Thread(target=self._watch, name="distxla-watch", daemon=True)
        self._thread.start()

    # --- for the queue

    def close(self) -> bool:
        """See call_queue.DirectIssuer."""
        self._native.gate_close(self.gate)
        if self._gate.is_in_flight:
            self._native.gate_retire(self.gate)
        return bool(self._gate.is_in_flight or self._gate.taking)

    def open(self) -> None:
        """See call_queue.DirectIssuer."""
        self._native.gate_open(self.gate)

    def take(self) -> PendingCall | None:
        """See call_queue.DirectIssuer."""
        with events.TAKING:
            self._native.gate_take(self.gate)
            number = self._gate.taking
            if number <= self._gate.over:  # 0, or one that the queue has ended before it has said `taken`
                return None
            call = self._taken.get(number)
            if call is None:
                call = self._taken[number] = self._pending_call(number)
            events.take(self._gate, call)
            return call

    def taken(self) -> None:
        """See call_queue.DirectIssuer."""
        self._gate.taking = 0

    def _pending_call(self, number: int) -> PendingCall:
        gate = self._gate
        plan = self._plans[gate.plan]
        place = gate.turn, gate.ordinal, gate.arrival
        call = DirectCall(plan.devices, plan.place, gate.sequence, gate.target, *place)

        def run() -> None:
            try:
                self._cluster.direct.end(call, [plan])
            except BaseException:
                gate.failed = number
                raise
            finally:
                gate.over = number
                self._let_go()
            del self._taken[number]

        return PendingCall(plan.name, run, result_bytes=plan.bytes, issued_for=self._cluster.queue)

    # --- for buffers

    def end_native(self, number: int) -> None:
        """See devices.NativeCalls."""
        if number > self._gate.over:
            self._cluster.queue.take_direct()

    def pending(self, number: int) -> PendingCall | None:
        """See devices.NativeCalls."""
        return self._taken.get(number)

    def hold(self, thing: object) -> None:
        """See devices.NativeCalls."""
        self._let_go()
        if thing is None:
            return
        if self._gate.issued != self._gate.over:  # in flight, or the queue's that it has become
            self._held.append((self._gate.issued, thing))
            self._gate.holds = 1
        else:
            self._cluster.direct.keep([thing])

    def _let_go(self) -> None:
        with self._lock:
            self._let_go_now()

    def _let_go_now(self) -> None:
        while self._held and self._held[0][0] <= self._gate.over:
            first = self._held[0]
            self._cluster.direct.keep([first[1]])  # where the call has failed, devices may be late
            if self._held and self._held[0] is first:  # unless a collection amid `keep` has let it go
                self._held.popleft()

    # --- for executables

    def plan(
        self,
        executable: Executable,
        devices: Sequence[Device],
        parameters: Sequence[Constants],
        results: Sequence[Constants],
        kinds: Sequence[int],
        blocks: ResultBlocks,
        donated: frozenset[int],
    ) -> Plan | None:
        """The plan of an executable that has been called; None for calls that are not ordinary."""
        program = executable.program
        place = self._cluster.direct.place(executable)
        if place is None or blocks.layout().bytes > MOST_BYTES or not devices:
            return None
        if any(constants.shape.element_type is TOKEN for constants in (*parameters, *results)):
            return None
        if any(k in donated and results[r].size >= PAGE and r in program.copied for r, k in program.in_place):
            return None  # computed in the memory of what it takes, which costs less than a copy
        if not all(isinstance(self._cluster.memory(device.id), Segment) for device in devices):
            return None
        plan = Plan(self, place, devices, parameters, results, kinds, blocks, donated, program.name)
        self._plans[plan.address] = plan
        return plan

    def grow(self, plan: Plan) -> None:
        """Give the plan more blocks."""
        if sum(other.held_bytes for other in list(self._plans.values())) > _KEPT_BYTES:
            self.trim()
        plan.grow(self._cluster)

    def drop(self, plan: Plan) -> None:
        """Its executable is gone: it has no further calls."""
        self._dropped.add(plan.address)
        if not self._trimming.locked():  # as it is where a collection comes here amid a trim; the next one takes it
            with self._trimming:
                self._trim([self._plans[address] for address in list(self._dropped)])

    def trim(self) -> bool:
        """Give free blocks back to the heap, unless a call is in flight; whether there were any."""
        with self._trimming:
            return self._trim(list(self._plans.values()))

    def _trim(self, plans: Sequence[Plan]) -> bool:
        """With the lock."""
        self._native.gate_retire(self.gate)
        self._let_go()
        found = [plan.trim(self._cluster.direct.keep) for plan in plans]
        for plan in plans:
            if plan.address in self._dropped and plan.is_empty and not self._gate.is_in_flight:
                self._dropped.discard(plan.address)
                self._plans.pop(plan.address, None)
        return any(found)

    # --- its life

    def _watch(self) -> None:
        while (found := self._native.gate_watch(self.gate)) != WATCH_LEFT:
            if found == WATCH_LATE:
                self._cluster.queue.take_direct()
            else:
                self._let_go()

    def stop(self) -> None:
        """The cluster is closed."""
        while self._thread.is_alive():
            self._gate.armed = GATE_LEFT  # which the thread may overwrite as it goes to sleep
            wake_all(self.gate + offset(STATES["Gate"], "armed"))
            self._thread.join(0.05)

    def _leave(self) -> None:
        """In a forked child, which must not use the parent's devices."""
        self._gate.closed |= 1 << 16
        self._gate.lock = 0


__all__ = ["DirectIssuer", "NativeBlock", "Plan"]
