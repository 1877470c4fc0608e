"""Native code of calls in which several processes may take part (collectives/protocols/launch_board.py).

Each process issues its own part. A call on the devices of this process alone starts at once; another one when the last
of its processes has arrived. One that can't start, as another process has called something else, or the owner of the
devices has these, is in flight all the same: the watching thread has the call queue end it, which asks the owner.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from llvmlite import ir

from distxla.collectives.protocols.control_block import H_FAILED
from distxla.collectives.protocols.launch_board import LaunchSet
from distxla.collectives.transports.shared_memory.emit_launches import emit_launches
from distxla.collectives.transports.shared_memory.wait_and_wake import ALL_SLEEPERS
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I64, NULL, POINTER, VOID, i32, i64
from distxla.emit.struct_view import Struct
from distxla.jax.pjrt.native_module import GATE_STUCK, LAST_TO_START, NativeModule
from distxla.jax.pjrt.table import ENTRIES, STATES, STRUCTURES
from distxla.jax.processes.made_calls import HELD, MadeCall
from distxla.targets.code import target_of


class NativeLaunches(NativeModule):
    """A module of its own, which one process alone does not compile."""

    def __init__(self) -> None:
        super().__init__("distxla_pjrt_launches")
        self._launches = emit_launches(self.module)
        self._length = self._external("strlen", I64, [POINTER])
        self._emit_launch()
        self._emit_count()

    def _emit_count(self) -> None:
        """void launch_count(gate, MadeCall): give a call its place among those of the process; once."""
        function, atomics = self._function("launch_count", VOID, [POINTER, POINTER])
        builder, (address, place) = atomics.builder, function.args
        made = Struct(atomics, MadeCall, place)
        with self._locked(atomics, address), self._unless(atomics, made.get("is_made")):
            launch = Struct(atomics, LaunchSet, made.get("launch"))
            ordinal = self._next_ordinal(atomics, launch)
            given = (made.get(field) for field in ("program", "by_frames", "site", "site_bytes"))
            made.set("turn", builder.call(self._launches.log, [launch.base, ordinal, *given]))
            made.set("ordinal", ordinal)
            made.set("is_made", 1)
        builder.ret_void()

    @staticmethod
    def _unless(atomics: AtomicsBuilder, flag: ir.Value) -> AbstractContextManager[None]:
        return atomics.when(atomics.builder.icmp_unsigned("==", flag, i32(0)))

    @staticmethod
    def _next_ordinal(atomics: AtomicsBuilder, launch: Struct) -> ir.Value:
        ordinal = launch.get("ordinal")
        launch.set("ordinal", atomics.builder.add(ordinal, i64(1)))
        return ordinal

    def _emit_launch(self) -> None:
        """void call_launch(args, plan): this process's part of a call, whose arguments and results are written. With
        the lock."""
        function, atomics = self._function("call_launch", VOID, [POINTER, POINTER])
        builder = atomics.builder
        plan = Struct(atomics, STATES["Plan"], function.args[1])
        gate = Struct(atomics, STATES["Gate"], plan.get("gate"))
        launch = Struct(atomics, LaunchSet, plan.get("launch"))
        devices = builder.zext(plan.get("devices"), I64)
        program = plan.get("program")
        site = self._site(atomics, Struct(atomics, ENTRIES["LoadedExecutable_Execute"], function.args[0]))
        size = self._length_of(atomics, site)
        ordinal = self._next_ordinal(atomics, launch)
        turn = builder.call(self._launches.log, [launch.base, ordinal, program, i32(0), site, size])
        sequence = self._following(atomics, gate, devices)
        gate.set("ordinal", ordinal)
        gate.set("turn", turn)
        gate.set("arrival", HELD)
        issued = [launch.base, turn, ordinal, sequence, gate.get("target")]
        held = builder.call(self._launches.issue, issued)
        with atomics.when(builder.icmp_unsigned("==", held, i32(0))):
            self._forget_failure(atomics, gate.get("control"), sequence)
            self._write_commands(atomics, gate, plan, devices)
            gate.set("arrival", builder.call(self._launches.arrive, [launch.base, turn, ordinal, program]))
        gate.set("is_in_flight", 1)
        stuck = builder.icmp_unsigned(">", gate.get("arrival"), i32(LAST_TO_START))
        with atomics.when(stuck):
            armed = gate.at("armed")
            atomics.release(i32(GATE_STUCK), armed)
            target_of(builder).emit_wake(builder, armed, i32(ALL_SLEEPERS))
        builder.ret_void()

    @staticmethod
    def _forget_failure(atomics: AtomicsBuilder, control: ir.Value, sequence: ir.Value) -> None:
        """A call that has failed 2**32 calls ago is not this one, which has its number."""
        builder = atomics.builder
        with atomics.when(builder.icmp_unsigned("==", atomics.acquire(control, H_FAILED), sequence)):
            atomics.sequential_store(builder.sub(sequence, i32(1)), control, H_FAILED)

    def _site(self, atomics: AtomicsBuilder, args: Struct) -> ir.Value:
        """Address of the user's line as JAX gives it; null where it does not."""
        builder = atomics.builder
        place = atomics.local(POINTER)
        atomics.store(NULL, place)
        options = args.get("options")
        with atomics.when(builder.icmp_unsigned("!=", builder.ptrtoint(options, I64), i64(0))):
            atomics.store(Struct(atomics, STRUCTURES["ExecuteOptions"], options).get("call_location"), place)
        return atomics.load(POINTER, place)

    def _length_of(self, atomics: AtomicsBuilder, text: ir.Value) -> ir.Value:
        """0 for null."""
        builder = atomics.builder
        place = atomics.local(I64)
        atomics.store(i64(0), place)
        with atomics.when(builder.icmp_unsigned("!=", builder.ptrtoint(text, I64), i64(0))):
            atomics.store(builder.call(self._length, [text]), place)
        return atomics.load(I64, place)


__all__ = ["NativeLaunches"]
