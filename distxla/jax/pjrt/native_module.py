"""Building blocks of the plugin's emitted functions: fields of declared structures, lists, and the gate's lock."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from llvmlite import ir

from distxla.collectives.protocols import control_block as control_words
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I8, I32, I64, NULL, POINTER, VOID, i32, i64, load_function
from distxla.emit.struct_view import Struct
from distxla.jax.pjrt.table import ENTRIES, STATES, offset
from distxla.targets.code import CodeModule, target_of
from distxla.targets.registry import native_target

DONE, PYTHON = 1, 0
"""Answers of a native entry point: it has done everything, or nothing, and Python has to."""
GATE_RESTS, GATE_WATCHED, GATE_LEFT, GATE_STUCK = 0, 1, 2, 3
"""Of the gate's `armed`: the watching thread sleeps; looks from time to time; shall end; shall look at once at a call
that can't start as it is."""
LAST_TO_START: Final = 1
"""Of the gate's `arrival`: a call with a greater one can't start as it is."""
_TRIES: Final = 64  # to take a lock before the thread yields


class NativeModule:
    """A module of native functions: those of entry points are named try_..., and answer DONE or PYTHON."""

    def __init__(self, name: str) -> None:
        self.code = native_target().code
        self.module = CodeModule(name, self.code)
        self._malloc = self._external("malloc", POINTER, [I64])
        self._free = self._external("free", VOID, [POINTER])
        self._thread = self._external("pthread_self", I64, [])
        self._lock = self._emit_lock()

    def _external(self, name: str, result: ir.Type, arguments: list[ir.Type]) -> ir.Function:
        return ir.Function(self.module, ir.FunctionType(result, arguments), name)

    def _record(self, name: str) -> ir.GlobalVariable:
        """The address of something that Python has: the text of the module must be the same in every process."""
        return ir.GlobalVariable(self.module, I8, name)

    def _function(
        self, name: str, result: ir.Type, arguments: list[ir.Type], *, internal: bool = False
    ) -> tuple[ir.Function, AtomicsBuilder]:
        return AtomicsBuilder.function(self.module, name, result, arguments, internal=internal, optimised=True)

    def _entry(self, name: str) -> tuple[AtomicsBuilder, Struct]:
        function, atomics = self._function(f"try_{name}", I32, [POINTER])
        return atomics, Struct(atomics, ENTRIES[name], function.args[0])

    @contextmanager
    def _locked(self, atomics: AtomicsBuilder, gate: ir.Value) -> Iterator[Struct]:
        """The body has the gate for itself. It must not return: `_unlock` first."""
        atomics.builder.call(self._lock, [gate])
        yield Struct(atomics, STATES["Gate"], gate)
        self._unlock(atomics, gate)

    def _unlock(self, atomics: AtomicsBuilder, gate: ir.Value) -> None:
        atomics.release(i32(0), gate, offset(STATES["Gate"], "lock"))

    def _emit_lock(self) -> ir.Function:
        function, atomics = self._function("gate_lock", VOID, [POINTER], internal=True)
        builder = atomics.builder
        word = atomics.at(function.args[0], offset(STATES["Gate"], "lock"))
        with builder.goto_entry_block():
            left = builder.alloca(I32)
        atomics.store(i32(_TRIES), left)
        with atomics.forever() as taken:
            before = builder.atomic_rmw("xchg", word, i32(1), "acquire")
            atomics.leave_if(builder.icmp_unsigned("==", before, i32(0)), taken)
            count = builder.sub(atomics.load(I32, left), i32(1))
            atomics.store(count, left)
            target_of(builder).emit_spin(builder)
            with atomics.when(builder.icmp_signed("<", count, i32(0))):
                target_of(builder).emit_yield(builder)
        builder.ret_void()
        return function

    @contextmanager
    def _each(self, atomics: AtomicsBuilder, place: ir.Value, structure: type[ctypes.Structure]) -> Iterator[Struct]:
        """Takes each element out of the list that begins at *place."""
        builder = atomics.builder
        with atomics.forever() as end:
            found = Struct(atomics, structure, atomics.load(POINTER, place))
            atomics.leave_if(builder.icmp_unsigned("==", builder.ptrtoint(found.base, I64), i64(0)), end)
            atomics.store(found.get("next"), place)
            yield found

    def _call_back(self, atomics: AtomicsBuilder, place: ir.Value, argument: ir.Value) -> None:
        """Call the void (error, argument) whose address is in *place, without an error."""
        function = load_function(atomics.builder, place, VOID, [POINTER, POINTER], "function")
        atomics.builder.call(function, [NULL, argument])

    def _leave_unless(self, atomics: AtomicsBuilder, flag: ir.Value) -> None:
        """Python's, where the flag of a record is not set."""
        atomics.return_if(atomics.builder.icmp_unsigned("==", flag, I8(0)), i32(PYTHON))

    def _leave_if_null(self, atomics: AtomicsBuilder, pointer: ir.Value, answer: int) -> None:
        address = atomics.builder.ptrtoint(pointer, I64)
        atomics.return_if(atomics.builder.icmp_unsigned("==", address, i64(0)), i32(answer))

    def _unlock_and_leave_if(self, atomics: AtomicsBuilder, gate: ir.Value, condition: ir.Value) -> None:
        """Leave a locked part for Python."""
        with atomics.when(condition):
            self._unlock(atomics, gate)
            atomics.builder.ret(i32(PYTHON))

    def _following(self, atomics: AtomicsBuilder, gate: Struct, devices: ir.Value) -> ir.Value:
        """The number of the next command; the gate has it, and the count of done devices that ends its call."""
        builder, control = atomics.builder, gate.get("control")
        sequence = builder.add(atomics.acquire(control, control_words.H_COMMAND), i32(1))
        target = builder.add(atomics.acquire(control, control_words.H_DONE), builder.trunc(devices, I32))
        gate.set("sequence", sequence)
        gate.set("target", target)
        return sequence

    def _write_commands(self, atomics: AtomicsBuilder, gate: Struct, plan: Struct, devices: ir.Value) -> None:
        """Those of this process's devices, which H_COMMAND publishes later."""
        sequence = gate.get("sequence")
        with atomics.count(i64(0), devices) as d:
            record = plan.element("records", d, POINTER)
            atomics.store(plan.get("number"), record, control_words.R_COMMAND_PROGRAM)
            atomics.store(sequence, record, control_words.R_COMMAND_SEQUENCE)
            atomics.store(i32(1), record, control_words.R_COMMAND_REPEAT)
            atomics.release(i32(control_words.CommandKind.RUN), record, control_words.R_COMMAND_KIND)
        atomics.store(gate.get("target"), gate.get("control"), control_words.H_DONE_TARGET)


__all__ = ["DONE", "GATE_LEFT", "GATE_RESTS", "GATE_STUCK", "GATE_WATCHED", "LAST_TO_START", "PYTHON", "NativeModule"]
