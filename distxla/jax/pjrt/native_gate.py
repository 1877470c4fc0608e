"""Native code of the gate: the end of calls, what Python does with it, and the blocks of results."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

from llvmlite import ir

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.transports.shared_memory.emit_call_loops import await_done
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I32, I64, NULL, POINTER, VOID, i32, i64
from distxla.emit.struct_view import Struct
from distxla.jax.pjrt.native_module import GATE_LEFT, GATE_RESTS, GATE_STUCK, GATE_WATCHED, LAST_TO_START, NativeModule
from distxla.jax.pjrt.table import RECORDS, STATES
from distxla.targets.code import target_of

WATCH_LATE, WATCH_HOLDS, WATCH_LEFT = 1, 2, 3
"""Why the watching thread comes back: a call lasts long; none is in flight, for which Python holds memory; the end."""
_BARRED: Final = 2  # of the gate's `closed`
SLICE_NS: Final = 50_000_000  # that native code waits before Python looks


class NativeGate(NativeModule):
    """Adds what calls, events and buffers have in common."""

    def __init__(self) -> None:
        super().__init__("distxla_pjrt_calls")
        self._await = self._emit_await()
        self._drop = self._emit_drop()
        self._retire = self._emit_retire()
        self._release = self._emit_release()
        self._emit_gate()
        self._emit_watch()

    def _emit_await(self) -> ir.Function:
        """Wait for the call in flight, with the GIL or not, but without the lock: CALL_..."""
        function, atomics = self._function("gate_await", I32, [POINTER, I32, I64])
        await_done(atomics, *function.args)
        return function

    def _has_ended(self, atomics: AtomicsBuilder, gate: Struct) -> ir.Value:
        """Whether the call in flight has ended well, and no owner of the devices of several processes has taken it.
        With the lock.

        In this order: such an owner, where a call has failed, sets the abort flag first, and so the devices come back;
        then it says that the call has failed, and clears the flag before it lets the process go.
        """
        builder, control = atomics.builder, gate.get("control")
        done = atomics.acquire(control, control_words.H_DONE)
        fine = builder.icmp_signed(">=", builder.sub(done, gate.get("target")), i32(0))
        for word in (control_words.H_ABORT, control_words.H_HOLD):
            fine = builder.and_(fine, builder.icmp_unsigned("==", atomics.acquire(control, word), i32(0)))
        failed = atomics.acquire(control, control_words.H_FAILED)
        fine = builder.and_(fine, builder.icmp_unsigned("!=", failed, gate.get("sequence")))
        return builder.and_(fine, builder.icmp_unsigned("<=", gate.get("arrival"), i32(LAST_TO_START)))

    def _emit_drop(self) -> ir.Function:
        """An event has a user less. With the lock."""
        function, atomics = self._function("event_drop", VOID, [POINTER], internal=True)
        builder, event = atomics.builder, Struct(atomics, RECORDS["Event"], function.args[0])
        uses = builder.sub(event.get("uses"), i32(1))
        event.set("uses", uses)
        with atomics.when(builder.icmp_unsigned("==", uses, i32(0))):
            builder.call(self._free, [event.base])
        builder.ret_void()
        return function

    def _emit_retire(self) -> ir.Function:
        """End the call in flight if it has ended well, and call what waits for it."""
        function, atomics = self._function("gate_retire", VOID, [POINTER])
        builder, (address,) = atomics.builder, function.args
        with builder.goto_entry_block():
            place = builder.alloca(POINTER)
        atomics.store(NULL, place)
        with self._locked(atomics, address) as gate, self._when_in_flight(atomics, gate):
            ended = self._has_ended(atomics, gate)
            with atomics.when(ended):
                gate.set("is_in_flight", 0)
                gate.set("over", gate.get("issued"))
                atomics.store(gate.get("events"), place)
                gate.set("events", NULL)
                self._mark_ready(atomics, place)
        with self._each(atomics, place, RECORDS["Event"]) as event:
            calls = event.at("callbacks")
            with self._each(atomics, calls, STATES["Callback"]) as found:
                self._call_back(atomics, found.at("function"), found.get("argument"))
                builder.call(self._free, [found.base])
            with self._locked(atomics, address):
                builder.call(self._drop, [event.base])
        builder.ret_void()
        return function

    def _when_in_flight(self, atomics: AtomicsBuilder, gate: Struct) -> AbstractContextManager[None]:
        """The body runs where a call is in flight."""
        return atomics.when(atomics.builder.icmp_unsigned("!=", gate.get("is_in_flight"), i32(0)))

    def _mark_ready(self, atomics: AtomicsBuilder, first: ir.Value) -> None:
        """All events of the list; their callbacks are left."""
        builder = atomics.builder
        with builder.goto_entry_block():
            place = builder.alloca(POINTER)
        atomics.store(atomics.load(POINTER, first), place)
        with self._each(atomics, place, RECORDS["Event"]) as event:
            event.set("is_ready", 1)

    def _emit_gate(self) -> None:
        """Each may be called again where an interrupt has come before Python has gone on. gate_close, gate_open;
        gate_bar (gate, on): closed as well while it is on;
        gate_take: `taking` is the call in flight, if there is one, and its events are Python's from then on; gate_trim
        (gate, place, into): moves the blocks of a plan that are free, none until the last call is over, nor where
        there are some from before."""
        for name in ("gate_close", "gate_open"):
            function, atomics = self._function(name, VOID, [POINTER])
            builder = atomics.builder
            with self._locked(atomics, function.args[0]) as gate:
                closed = gate.get("closed")
                changed = builder.or_(closed, i32(1)) if name == "gate_close" else builder.and_(closed, i32(~1))
                gate.set("closed", changed)
            builder.ret_void()
        function, atomics = self._function("gate_bar", VOID, [POINTER, I32])
        builder = atomics.builder
        with self._locked(atomics, function.args[0]) as gate:
            rest = builder.and_(gate.get("closed"), i32(~_BARRED))
            is_on = builder.icmp_unsigned("!=", function.args[1], i32(0))
            gate.set("closed", builder.or_(rest, builder.select(is_on, i32(_BARRED), i32(0))))
        builder.ret_void()
        function, atomics = self._function("gate_take", VOID, [POINTER])
        builder, (address,) = atomics.builder, function.args
        with builder.goto_entry_block():
            place = builder.alloca(POINTER)
        with self._locked(atomics, address) as gate, self._when_in_flight(atomics, gate):
            gate.set("taking", gate.get("issued"))
            gate.set("taken_events", gate.get("events"))
            gate.set("is_in_flight", 0)
            gate.set("events", NULL)
            atomics.store(gate.get("taken_events"), place)
            with self._each(atomics, place, RECORDS["Event"]) as event:
                event.set("is_native", 0)
        builder.ret_void()
        function, atomics = self._function("gate_trim", VOID, [POINTER, POINTER, POINTER])
        builder, (address, place, into) = atomics.builder, function.args
        with self._locked(atomics, address) as gate:
            runs = builder.icmp_unsigned("!=", gate.get("issued"), gate.get("over"))
            left = builder.icmp_unsigned("!=", builder.ptrtoint(atomics.load(POINTER, into), I64), i64(0))
            with atomics.when(builder.not_(builder.or_(runs, left))):
                atomics.store(atomics.load(POINTER, place), into)
                atomics.store(NULL, place)
        builder.ret_void()

    def _emit_watch(self) -> None:
        """i32 gate_watch(gate): look at calls from time to time: WATCH_... Blocks."""
        function, atomics = self._function("gate_watch", I32, [POINTER])
        builder, (address,) = atomics.builder, function.args
        gate = Struct(atomics, STATES["Gate"], address)
        armed = gate.at("armed")
        with builder.goto_entry_block():
            timeout = builder.alloca(I64, size=2)
        atomics.store(i64(0), timeout)
        atomics.store(i64(SLICE_NS), timeout, 8)
        with atomics.forever():
            state = atomics.acquire(armed)
            atomics.return_if(builder.icmp_unsigned("==", state, i32(GATE_LEFT)), i32(WATCH_LEFT))
            with builder.if_else(builder.icmp_unsigned("==", state, i32(0))) as (idle, busy):
                with idle:
                    target_of(builder).emit_sleep(builder, armed, state)
                with busy:
                    stuck = builder.icmp_unsigned("==", state, i32(GATE_STUCK))
                    with builder.if_else(stuck) as (now, later):
                        with now:
                            atomics.release(i32(GATE_WATCHED), armed)
                        with later:
                            target_of(builder).emit_sleep(builder, armed, state, timeout)
                    builder.call(self._retire, [address])
                    with self._locked(atomics, address):
                        issued = gate.get("issued")
                        flies = builder.icmp_unsigned("!=", gate.get("is_in_flight"), i32(0))
                        is_old = builder.icmp_unsigned("==", issued, gate.get("seen"))
                        gate.set("seen", issued)
                        late = builder.and_(flies, builder.or_(is_old, stuck))
                        rests = builder.and_(
                            is_old, builder.icmp_unsigned("==", atomics.acquire(armed), i32(GATE_WATCHED))
                        )
                        with atomics.when(builder.and_(builder.not_(flies), rests)):
                            atomics.release(i32(GATE_RESTS), armed)
                        holds = builder.icmp_unsigned("!=", gate.get("holds"), i32(0))
                        holds = builder.and_(holds, builder.not_(flies))
                        with atomics.when(holds):
                            gate.set("holds", 0)
                    atomics.return_if(late, i32(WATCH_LATE))
                    atomics.return_if(holds, i32(WATCH_HOLDS))
        builder.unreachable()

    def _emit_release(self) -> ir.Function:
        """void block_release(gate, block): one result less lies in the block."""
        function, atomics = self._function("block_release", VOID, [POINTER, POINTER])
        address, block = function.args
        with self._locked(atomics, address):
            self._release_block(atomics, block)
        atomics.builder.ret_void()
        return function

    def _release_block(self, atomics: AtomicsBuilder, address: ir.Value) -> None:
        """With the lock."""
        builder, block = atomics.builder, Struct(atomics, STATES["Block"], address)
        uses = builder.sub(block.get("uses"), i32(1))
        block.set("uses", uses)
        with atomics.when(builder.icmp_unsigned("==", uses, i32(0))):
            place = block.get("free")
            block.set("next", atomics.load(POINTER, place))
            atomics.store(address, place)


__all__ = ["SLICE_NS", "WATCH_HOLDS", "WATCH_LATE", "WATCH_LEFT", "NativeGate"]
