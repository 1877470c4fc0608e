"""Native code of buffers and events: their entry points, of those that native calls have made."""

from __future__ import annotations

import ctypes
from typing import Final

from llvmlite import ir

from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I8, I32, I64, NULL, POINTER, VOID, i32, i64
from distxla.emit.struct_view import Struct
from distxla.jax.pjrt.native_gate import SLICE_NS, NativeGate
from distxla.jax.pjrt.native_module import DONE
from distxla.jax.pjrt.table import RECORDS, STATES

PATIENCE_NS: Final = 1_000_000  # that a call waits for the one before it, and threads but the main one for a call
READY_EVENT: Final = "distxla_ready_event"
"""The name of the event that is always ready, which Python has made."""
_EVENT_SIZE: Final = ctypes.sizeof(RECORDS["Event"])


class NativeEvents(NativeGate):
    """Adds the entry points of buffers and events."""

    def __init__(self) -> None:
        super().__init__()
        self._ready = self._record(READY_EVENT)
        self._emit_buffers()
        self._emit_events()

    def _gate_of(self, atomics: AtomicsBuilder, buffer: Struct) -> ir.Value:
        return Struct(atomics, RECORDS["Device"], buffer.get("device")).get("gate")

    def _emit_buffers(self) -> None:
        function, atomics = self._function("buffer_take", VOID, [POINTER])
        buffer = Struct(atomics, RECORDS["Buffer"], function.args[0])
        with self._locked(atomics, self._gate_of(atomics, buffer)):
            buffer.set("is_native", 0)
        atomics.builder.ret_void()
        for name in ("Buffer_Delete", "Buffer_Destroy"):
            atomics, args = self._entry(name)
            builder = atomics.builder
            buffer = Struct(atomics, RECORDS["Buffer"], args.get("buffer"))
            self._leave_if_null(atomics, buffer.base, DONE)
            self._leave_unless(atomics, buffer.get("is_native"))
            address = self._gate_of(atomics, buffer)
            with self._locked(atomics, address):
                self._unlock_and_leave_if(atomics, address, builder.icmp_unsigned("==", buffer.get("is_native"), I8(0)))
                self._delete(atomics, buffer)
                if name == "Buffer_Destroy":
                    builder.call(self._free, [buffer.base])
            builder.ret(i32(DONE))
        self._emit_ready_event()

    def _delete(self, atomics: AtomicsBuilder, buffer: Struct) -> None:
        """Give the memory up. With the lock."""
        with atomics.when(atomics.builder.icmp_unsigned("==", buffer.get("is_deleted"), I8(0))):
            buffer.set("is_deleted", 1)
            self._release_block(atomics, buffer.get("block"))

    def _emit_ready_event(self) -> None:
        atomics, args = self._entry("Buffer_ReadyEvent")
        builder = atomics.builder
        buffer = Struct(atomics, RECORDS["Buffer"], args.get("buffer"))
        self._leave_unless(atomics, buffer.get("is_native"))
        address = self._gate_of(atomics, buffer)
        builder.call(self._retire, [address])
        with self._locked(atomics, address) as gate:
            call = buffer.get("call")
            is_old = builder.icmp_signed("<=", call, gate.get("failed"))
            self._unlock_and_leave_if(atomics, address, is_old)
            with atomics.when(builder.icmp_signed("<=", call, gate.get("over"))):
                self._unlock(atomics, address)
                args.set("event", self._ready)
                builder.ret(i32(DONE))
            is_taken = builder.icmp_unsigned("==", gate.get("is_in_flight"), i32(0))
            self._unlock_and_leave_if(atomics, address, is_taken)
            args.set("event", self._new_event(atomics, gate, waits=True, uses=i32(1)))
        builder.ret(i32(DONE))

    def _new_event(self, atomics: AtomicsBuilder, gate: Struct, *, waits: bool, uses: ir.Value) -> ir.Value:
        """An event of the call in flight, for so many users. With the lock."""
        event = Struct(atomics, RECORDS["Event"], atomics.builder.call(self._malloc, [i64(_EVENT_SIZE)]))
        event.set("functions", NULL)
        event.set("is_ready", 0)
        event.set("is_native", 1)
        event.set("waits", int(waits))
        event.set("uses", atomics.builder.add(uses, i32(1)))  # the gate, too
        event.set("gate", gate.base)
        event.set("callbacks", NULL)
        event.set("next", gate.get("events"))
        gate.set("events", event.base)
        return event.base

    def _emit_events(self) -> None:
        self._emit_is_ready()
        self._emit_wait("Event_Await")
        self._emit_wait("Event_OnReady")
        atomics, args = self._entry("Event_Error")
        event = Struct(atomics, RECORDS["Event"], args.get("event"))
        atomics.return_if(self._is_constant(atomics, event), i32(DONE))
        self._leave_unless(atomics, event.get("is_native"))
        atomics.builder.ret(i32(DONE))
        atomics, args = self._entry("Event_Destroy")
        builder, event = atomics.builder, Struct(atomics, RECORDS["Event"], args.get("event"))
        self._leave_if_null(atomics, event.base, DONE)
        atomics.return_if(self._is_constant(atomics, event), i32(DONE))
        self._leave_unless(atomics, event.get("is_native"))
        address = event.get("gate")
        with self._locked(atomics, address):
            self._unlock_and_leave_if(atomics, address, builder.icmp_unsigned("==", event.get("is_native"), I8(0)))
            builder.call(self._drop, [event.base])
        builder.ret(i32(DONE))

    def _is_constant(self, atomics: AtomicsBuilder, event: Struct) -> ir.Value:
        """Whether it is the event that is always ready."""
        builder = atomics.builder
        return builder.icmp_unsigned("==", builder.ptrtoint(event.base, I64), builder.ptrtoint(self._ready, I64))

    def _emit_is_ready(self) -> None:
        atomics, args = self._entry("Event_IsReady")
        event = Struct(atomics, RECORDS["Event"], args.get("event"))
        with atomics.when(atomics.builder.icmp_unsigned("!=", event.get("is_native"), I8(0))):
            atomics.builder.call(self._retire, [event.get("gate")])
        args.set("is_ready", event.get("is_ready"))
        atomics.builder.ret(i32(DONE))

    def _emit_wait(self, name: str) -> None:
        """Event_Await and Event_OnReady: a callback of an event that waits is called when its wait is over; of another
        one later, by the thread that ends the call."""
        atomics, args = self._entry(name)
        builder = atomics.builder
        event = Struct(atomics, RECORDS["Event"], args.get("event"))
        is_callback = name == "Event_OnReady"
        with atomics.when(builder.icmp_unsigned("!=", event.get("is_ready"), I8(0))):
            is_ours = builder.icmp_unsigned("!=", event.get("is_native"), I8(0))
            with atomics.when(builder.or_(is_ours, self._is_constant(atomics, event))):
                if is_callback:
                    self._call_back(atomics, args.at("callback"), args.get("user_arg"))
                builder.ret(i32(DONE))
        self._leave_unless(atomics, event.get("is_native"))
        address = event.get("gate")
        with builder.goto_entry_block():
            attempts = builder.alloca(I32)
        atomics.store(i32(0), attempts)
        with atomics.forever():
            builder.call(self._retire, [address])
            with self._locked(atomics, address) as gate:
                self._unlock_and_leave_if(atomics, address, builder.icmp_unsigned("==", event.get("is_native"), I8(0)))
                with atomics.when(builder.icmp_unsigned("!=", event.get("is_ready"), I8(0))):
                    self._unlock(atomics, address)
                    if is_callback:
                        self._call_back(atomics, args.at("callback"), args.get("user_arg"))
                    builder.ret(i32(DONE))
                if is_callback:
                    with atomics.when(builder.icmp_unsigned("==", event.get("waits"), I8(0))):
                        self._register(atomics, event, args)
                        self._unlock(atomics, address)
                        builder.ret(i32(DONE))
                control, target, main = gate.get("control"), gate.get("target"), gate.get("main")
                tried = atomics.load(I32, attempts)
                self._unlock_and_leave_if(atomics, address, builder.icmp_unsigned("!=", tried, i32(0)))
                atomics.store(i32(1), attempts)
            is_main = builder.icmp_unsigned("==", builder.call(self._thread, []), main)
            patience = builder.select(is_main, i64(SLICE_NS), i64(PATIENCE_NS))
            builder.call(self._await, [control, target, patience])
        builder.unreachable()

    def _register(self, atomics: AtomicsBuilder, event: Struct, args: Struct) -> None:
        """Have the callback called when the event is ready. With the lock."""
        size = i64(ctypes.sizeof(STATES["Callback"]))
        found = Struct(atomics, STATES["Callback"], atomics.builder.call(self._malloc, [size]))
        found.set("function", args.get("callback"))
        found.set("argument", args.get("user_arg"))
        found.set("next", event.get("callbacks"))
        event.set("callbacks", found.base)


__all__ = ["PATIENCE_NS", "NativeEvents"]
