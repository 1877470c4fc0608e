"""Native code of ordinary calls: of entry points that then need no Python.

An ordinary call has a plan (plans.py): its program is loaded, and a command to the devices is all that it takes. It is
issued here where nothing else is under way, and its results are records that no Python knows; their memory is taken
from the plan's free blocks, and goes back there when it is given up: the next call that writes it begins behind all
that read it. Else the stub calls Python: for all that is out of the ordinary, and where a call has not ended well.

A thread that looks whether the call in flight is over, and finds that it is, ends it (`retire`): it calls the callbacks
of its events. No thread has to look: one of Python does so from time to time (`watch`), and has the call queue end a
call that lasts long, or fails. The gate is closed as long as the queue has calls.
"""

from __future__ import annotations

import ctypes
from typing import Final

from llvmlite import ir

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.protocols.call_loops import CALL_DONE
from distxla.collectives.transports.shared_memory.wait_and_wake import ALL_SLEEPERS
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I8, I32, I64, POINTER, VOID, i32, i64, load_function
from distxla.emit.struct_view import Struct
from distxla.jax.pjrt.native_events import PATIENCE_NS, NativeEvents
from distxla.jax.pjrt.native_module import DONE, GATE_RESTS, GATE_WATCHED, PYTHON
from distxla.jax.pjrt.table import ENTRIES, RECORDS, STATES, STRUCTURES
from distxla.targets.code import target_of

ENTRY_POINTS: Final = (
    "Buffer_Delete",
    "Buffer_Destroy",
    "Buffer_ReadyEvent",
    "Event_Await",
    "Event_Destroy",
    "Event_Error",
    "Event_IsReady",
    "Event_OnReady",
    "LoadedExecutable_Execute",
)
_SHORT_SPINS: Final = 1500  # about 20 us: longer than a short program takes where the device is awake


class NativeCalls(NativeEvents):
    """All native functions of the plugin."""

    def __init__(self) -> None:
        super().__init__()
        self._emit_execute()

    def _emit_execute(self) -> None:
        """LoadedExecutable_Execute, and void call_execute(args, deletes, place): the same, with the answer in *place,
        since an interrupt may keep Python from getting it; deletes: the caller then deletes the donated buffers that
        are Python's."""
        check, issue = self._emit_check(), self._emit_issue()
        function, atomics = self._function("execute", I32, [POINTER, I32], internal=True)
        noted, noting = self._function("call_execute", VOID, [POINTER, I32, POINTER])
        found = noting.builder.call(function, noted.args[:2])
        noting.store(found, noted.args[2])
        noting.builder.ret_void()
        entry, given = self._entry("LoadedExecutable_Execute")
        entry.builder.ret(entry.builder.call(function, [given.base, i32(0)]))
        args = Struct(atomics, ENTRIES["LoadedExecutable_Execute"], function.args[0])
        builder = atomics.builder
        executable = Struct(atomics, RECORDS["Executable"], args.get("executable"))
        plan = Struct(atomics, STATES["Plan"], executable.get("plan"))
        self._leave_if_null(atomics, plan.base, PYTHON)
        count = builder.icmp_unsigned("!=", args.get("num_devices"), builder.zext(plan.get("devices"), I64))
        atomics.return_if(count, i32(PYTHON))
        count = builder.icmp_unsigned("!=", args.get("num_args"), builder.zext(plan.get("arguments"), I64))
        atomics.return_if(count, i32(PYTHON))
        options = args.get("options")
        has_options = builder.icmp_unsigned("!=", builder.ptrtoint(options, I64), i64(0))
        has_donated = builder.icmp_unsigned("!=", plan.get("has_donated"), I8(0))
        with atomics.when(builder.and_(has_options, has_donated)):
            given = Struct(atomics, STRUCTURES["ExecuteOptions"], options)
            kept = builder.icmp_unsigned("!=", given.get("num_non_donatable_input_indices"), i64(0))
            atomics.return_if(kept, i32(PYTHON))
        address = plan.get("gate")
        self._await_earlier(atomics, address)
        builder.call(self._lock, [address])
        gate = Struct(atomics, STATES["Gate"], address)
        is_closed = builder.icmp_unsigned("!=", builder.or_(gate.get("closed"), gate.get("is_in_flight")), i32(0))
        self._unlock_and_leave_if(atomics, address, is_closed)
        fits = builder.call(check, [args.base, plan.base, function.args[1]])
        self._unlock_and_leave_if(atomics, address, builder.icmp_unsigned("==", fits, i32(PYTHON)))
        builder.call(issue, [args.base, plan.base])
        self._unlock(atomics, address)
        self._linger(atomics, gate)
        builder.ret(i32(DONE))

    def _await_earlier(self, atomics: AtomicsBuilder, address: ir.Value) -> None:
        """Wait for a while for the call in flight."""
        builder, gate = atomics.builder, Struct(atomics, STATES["Gate"], address)
        builder.call(self._retire, [address])
        builder.call(self._lock, [address])
        flies = builder.icmp_unsigned("!=", gate.get("is_in_flight"), i32(0))
        control, target = gate.get("control"), gate.get("target")
        self._unlock(atomics, address)
        with atomics.when(flies):
            outcome = builder.call(self._await, [control, target, i64(PATIENCE_NS)])
            atomics.return_if(builder.icmp_unsigned("!=", outcome, i32(CALL_DONE)), i32(PYTHON))
            builder.call(self._retire, [address])

    def _emit_check(self) -> ir.Function:
        """i32 call_check(args, plan, deletes): whether arguments and devices are ordinary, and there is
        memory for the results. Writes the arguments into the call area. With the lock."""
        function, atomics = self._function("call_check", I32, [POINTER, POINTER, I32], internal=True)
        builder = atomics.builder
        args = Struct(atomics, ENTRIES["LoadedExecutable_Execute"], function.args[0])
        plan = Struct(atomics, STATES["Plan"], function.args[1])
        gate = Struct(atomics, STATES["Gate"], plan.get("gate"))
        for word in (control_words.H_ABORT, control_words.H_HOLD):
            found = atomics.acquire(gate.get("control"), word)
            atomics.return_if(builder.icmp_unsigned("!=", found, i32(0)), i32(PYTHON))
        failed = gate.get("failed")
        check = builder.add(gate.get("checks"), i64(1))
        gate.set("checks", check)
        devices, arguments, blocks = (builder.zext(plan.get(name), I64) for name in ("devices", "arguments", "blocks"))
        with atomics.count(i64(0), blocks) as k:
            free = builder.ptrtoint(plan.element("free", k, POINTER), I64)
            atomics.return_if(builder.icmp_unsigned("==", free, i64(0)), i32(PYTHON))
        with atomics.count(i64(0), devices) as d:
            row = args.element("argument_lists", d, POINTER)
            device = builder.ptrtoint(plan.element("handles", d, POINTER), I64)
            area = plan.element("areas", d, POINTER)
            with atomics.count(i64(0), arguments) as k:
                found = atomics.load(POINTER, row, builder.mul(k, i64(8)))
                buffer = Struct(atomics, RECORDS["Buffer"], found)
                dims = builder.ptrtoint(plan.element("dims", k, POINTER), I64)
                wrong = builder.or_(
                    builder.icmp_unsigned("!=", builder.ptrtoint(buffer.get("dims"), I64), dims),
                    builder.icmp_unsigned("!=", builder.ptrtoint(buffer.get("device"), I64), device),
                )
                flags = builder.or_(buffer.get("is_deleted"), buffer.get("is_pending"))
                wrong = builder.or_(wrong, builder.icmp_unsigned("!=", flags, I8(0)))
                # a donated buffer that is Python's, or one that an earlier failure may have hit
                native = builder.icmp_unsigned("!=", buffer.get("is_native"), I8(0))
                left = builder.icmp_unsigned("==", function.args[2], i32(0))
                donated = builder.icmp_unsigned("!=", plan.element("donated", k, I8), I8(0))
                wrong = builder.or_(wrong, builder.and_(left, builder.and_(donated, builder.not_(native))))
                old = builder.icmp_signed("<=", buffer.get("call"), failed)
                wrong = builder.or_(wrong, builder.and_(native, old))
                # one that is an argument twice, and donated
                before = buffer.get("seen")
                mark = builder.or_(builder.shl(check, i64(1)), builder.zext(donated, I64))
                again = builder.icmp_unsigned("==", builder.ashr(before, i64(1)), check)
                either = builder.icmp_unsigned("!=", builder.and_(builder.or_(before, mark), i64(1)), i64(0))
                wrong = builder.or_(wrong, builder.and_(again, either))
                atomics.return_if(wrong, i32(PYTHON))
                buffer.set("seen", mark)
                atomics.store(buffer.get("offset"), area, builder.mul(k, i64(8)))
        builder.ret(i32(DONE))
        return function

    def _emit_issue(self) -> ir.Function:
        """void call_issue(args, plan): make the results, and start the call. With the lock."""
        function, atomics = self._function("call_issue", VOID, [POINTER, POINTER], internal=True)
        builder = atomics.builder
        args = Struct(atomics, ENTRIES["LoadedExecutable_Execute"], function.args[0])
        plan = Struct(atomics, STATES["Plan"], function.args[1])
        gate = Struct(atomics, STATES["Gate"], plan.get("gate"))
        call = builder.add(gate.get("issued"), i64(1))
        gate.set("issued", call)
        devices, arguments = builder.zext(plan.get("devices"), I64), builder.zext(plan.get("arguments"), I64)
        results = builder.zext(plan.get("results"), I64)
        with atomics.count(i64(0), devices) as d:
            row = args.element("output_lists", d, POINTER)
            first = builder.mul(d, results)
            area = atomics.at(plan.element("areas", d, POINTER), builder.mul(arguments, i64(8)))
            with atomics.count(i64(0), results) as k:
                made = self._make_result(atomics, plan, builder.add(first, k), k, call)
                atomics.store(made.base, row, builder.mul(k, i64(8)))
                atomics.store(made.get("offset"), area, builder.mul(k, i64(8)))
        with atomics.count(i64(0), builder.zext(plan.get("blocks"), I64)) as k:
            place = plan.place("free", k, 8)
            block = Struct(atomics, STATES["Block"], atomics.load(POINTER, place))
            atomics.store(block.get("next"), place)
            block.set("uses", plan.element("uses", k, I32))
        with atomics.when(builder.icmp_unsigned("!=", plan.get("has_donated"), I8(0))):
            self._delete_donated(atomics, args, plan)
        events = args.get("device_complete_events")
        with atomics.when(builder.icmp_unsigned("!=", builder.ptrtoint(events, I64), i64(0))):
            event = self._new_event(atomics, gate, waits=False, uses=plan.get("devices"))
            with atomics.count(i64(0), devices) as d:
                atomics.store(event, events, builder.mul(d, i64(8)))
        self._command(atomics, args, gate, plan, devices)
        builder.ret_void()
        return function

    def _delete_donated(self, atomics: AtomicsBuilder, args: Struct, plan: Struct) -> None:
        """Those that are not Python's. With the lock."""
        builder = atomics.builder
        with atomics.count(i64(0), builder.zext(plan.get("devices"), I64)) as d:
            row = args.element("argument_lists", d, POINTER)
            with atomics.count(i64(0), builder.zext(plan.get("arguments"), I64)) as k:
                buffer = Struct(atomics, RECORDS["Buffer"], atomics.load(POINTER, row, builder.mul(k, i64(8))))
                ours = builder.and_(plan.element("donated", k, I8), buffer.get("is_native"))
                with atomics.when(builder.icmp_unsigned("!=", ours, I8(0))):
                    self._delete(atomics, buffer)

    def _make_result(
        self, atomics: AtomicsBuilder, plan: Struct, number: ir.Value, k: ir.Value, call: ir.Value
    ) -> Struct:
        """The record of a result: the plan's `number`, which is the device's result k."""
        builder, size = atomics.builder, ctypes.sizeof(RECORDS["Buffer"])
        made = Struct(atomics, RECORDS["Buffer"], builder.call(self._malloc, [i64(size)]))
        model = plan.place("made", number, size)
        for begin in range(0, size, 8):
            atomics.store(atomics.load(I64, model, begin), made.base, begin)
        index = builder.zext(plan.element("numbers", k, I32), I64)
        block = Struct(atomics, STATES["Block"], plan.element("free", index, POINTER))
        place = builder.add(made.get("offset"), block.get("offset"))
        made.set("offset", place)
        made.set("pointer", atomics.at(made.get("pointer"), place))
        made.set("block", block.base)
        made.set("call", call)
        return made

    def _command(self, atomics: AtomicsBuilder, args: Struct, gate: Struct, plan: Struct, devices: ir.Value) -> None:
        """Start the call, and have the watching thread look at it."""
        builder, control, armed = atomics.builder, gate.get("control"), gate.at("armed")
        gate.set("plan", plan.base)
        is_alone = builder.icmp_unsigned("==", builder.ptrtoint(plan.get("start"), I64), i64(0))
        with builder.if_else(is_alone) as (alone, joint):
            with alone:
                command = atomics.at(control, control_words.H_COMMAND)
                sequence = self._following(atomics, gate, devices)
                self._write_commands(atomics, gate, plan, devices)
                gate.set("is_in_flight", 1)
                atomics.sequential_store(sequence, control, control_words.H_COMMAND)
                target_of(builder).emit_wake(builder, command, i32(ALL_SLEEPERS))
            with joint:
                start = load_function(builder, plan.at("start"), VOID, [POINTER, POINTER], "start")
                builder.call(start, [args.base, plan.base])
        with atomics.when(builder.icmp_unsigned("==", atomics.acquire(armed), i32(GATE_RESTS))):
            atomics.release(i32(GATE_WATCHED), armed)
            target_of(builder).emit_wake(builder, armed, i32(ALL_SLEEPERS))

    def _linger(self, atomics: AtomicsBuilder, gate: Struct) -> None:
        """Wait for a moment for the call: where it ends, nothing has to wait for it any more."""
        builder, control = atomics.builder, gate.get("control")
        with builder.goto_entry_block():
            left = builder.alloca(I64)
        cores, here = (atomics.load(I32, control, word) for word in (control_words.H_CORES, control_words.H_HERE))
        pays = builder.icmp_unsigned("==", atomics.load(I32, control, control_words.H_SPIN_SKIP), i32(0))
        pays = builder.and_(pays, builder.icmp_unsigned("<", here, cores))
        atomics.store(builder.select(pays, i64(_SHORT_SPINS), i64(0)), left)
        target = gate.get("target")
        with atomics.forever() as enough:
            done = atomics.acquire(control, control_words.H_DONE)
            atomics.leave_if(builder.icmp_signed(">=", builder.sub(done, target), i32(0)), enough)
            count = builder.sub(atomics.load(I64, left), i64(1))
            atomics.store(count, left)
            atomics.leave_if(builder.icmp_signed("<", count, i64(0)), enough)
            target_of(builder).emit_spin(builder)
        builder.call(self._retire, [gate.base])


__all__ = ["ENTRY_POINTS", "NativeCalls"]
