"""Devices for tests of native collectives: threads or forked processes over shared memory, no Ray, no linker."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from distxla.collectives.protocols import control_block as control_words
from distxla.collectives.transports.shared_memory.emitter import SharedMemoryEmitter
from distxla.collectives.transports.shared_memory.transport import release_waits
from distxla.collectives.transports.shared_words import SharedWords
from distxla.compiler.lower.emitter import ScalarEmitter
from distxla.emit.atomics_builder import AtomicsBuilder
from distxla.emit.native_function import I32, I64, POINTER, i32, i64
from distxla.ir.computation import Computation
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.shape import Called, Shape
from distxla.ops.support.registry import op_class
from distxla.program.abi import Status
from distxla.program.artifact import CommunicatorSpec, Site
from distxla.program.execution_context import ExecutionContext
from distxla.targets.code import CodeModule
from distxla.targets.native import finish
from distxla.targets.registry import native_target
from tests.compiler.lower.loaded import loaded

STATE_BYTES = 8 << 20


def reduction(opcode: str, shape: Shape, name: str = "combine") -> Computation:
    """A computation of two scalars that is one binary op."""
    scalar = shape.with_dims(())
    a = Instruction("a", scalar, op_class("parameter")(number=0))
    b = Instruction("b", scalar, op_class("parameter")(number=1))
    root = Instruction("r", scalar, op_class(opcode)(), ("a", "b"))
    return Computation(name, (a, b, root), "r")


def module_of(op: Any, operands: Sequence[Shape], result: Shape, called: Sequence[Computation] = ()) -> Module:
    """A module whose entry is one instruction `c` on its parameters."""
    parameters = [Instruction(f"p{i}", s, op_class("parameter")(number=i)) for i, s in enumerate(operands)]
    root = Instruction("c", result, op, tuple(p.name for p in parameters))
    return Module("test", (*called, Computation("main", (*parameters, root), "c")), "main")


def program_shapes(module: Module) -> Called:
    return lambda name: module[name].program_shape


class Code:
    """The native routines of some modules' root instructions, one site each, in one image.

    `loops[i]` is i32 (Context*, i64 times, u64* operands, u64* results): the routine of site i, run that often.
    """

    def __init__(self, modules: Sequence[Module], replicas: int, partitions: int) -> None:
        transport = SharedMemoryEmitter()
        llvm_module = CodeModule("test", native_target().code)
        self.specs: list[CommunicatorSpec] = []
        for number, module in enumerate(modules):
            entry = module.entry_computation
            instruction = entry.root_instruction
            operands = tuple(leaf for p in entry.parameters for leaf in p.shape.leaves())
            spec = transport.communicator(instruction, operands, Counts(replicas, partitions))
            keys = [s.key for s in self.specs]
            if spec.key not in keys:
                self.specs.append(spec)
                keys.append(spec.key)
            site = Site(number, instruction.name, instruction.opcode, entry.name, keys.index(spec.key), None)
            routine, _ = transport.emit(llvm_module, module, ScalarEmitter, site, spec, instruction, operands)
            _emit_loop(llvm_module, routine, number)
        parsed = finish.parse(llvm_module)
        finish.optimise(parsed)
        code = loaded(parsed)
        weakref.finalize(self, code.close)
        kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
        self.loops = [kind(code.address_of(f"loop_{i}")) for i in range(len(modules))]


def _emit_loop(llvm_module: ir.Module, routine: ir.Function, number: int) -> None:
    function, atomics = AtomicsBuilder.function(
        llvm_module, f"loop_{number}", I32, [POINTER, I64, POINTER, POINTER], internal=False
    )
    context, times, operands, results = function.args
    with atomics.count(i64(0), times):
        status = atomics.builder.call(routine, [context, i32(number), operands, results])
        atomics.return_if(atomics.builder.icmp_unsigned("!=", status, i32(0)), status)
    atomics.builder.ret(i32(0))


class World:
    """Memory and contexts of all devices of a run of `code`."""

    def __init__(self, code: Code, replicas: int, partitions: int, memory_bytes: int, cores: int | None = None) -> None:
        self.code, self.devices = code, replicas * partitions
        self.memory = [mmap.mmap(-1, max(4096, memory_bytes)) for _ in range(self.devices)]
        fixed = control_words.fixed_bytes(self.devices)
        needed = sum((sum(spec.state_bytes) + 64 * len(spec.groups)) for spec in code.specs)
        self.control = mmap.mmap(-1, fixed + needed + 4096)
        base = _address(self.control)
        words = memoryview(self.control).cast("B").cast("I")
        words[control_words.H_DEVICES // 4] = words[control_words.H_HERE // 4] = self.devices
        words[control_words.H_CORES // 4] = cores or len(os.sched_getaffinity(0))
        words.release()
        places: dict[tuple[int, int], int] = {}
        at = fixed
        for number, spec in enumerate(code.specs):
            for group, size in zip(spec.groups, spec.state_bytes, strict=True):
                places.update({(number, device): base + at for device in group})
                at += (size + 63) // 64 * 64
        memories = [_address(m) for m in self.memory]
        self.contexts = []
        for device in range(self.devices):
            context = ExecutionContext(
                device,
                memories,
                partitions=partitions,
                control=base,
                record=base + control_words.record_offset(device),
                communicators=[places[k, device] for k in range(len(code.specs))],
            )
            self.contexts.append(context)

    def array(self, device: int, offset: int, shape: Shape) -> np.ndarray[Any, Any]:
        """A view of a device's memory."""
        return np.ndarray(shape.dims, shape.dtype.dtype, self.memory[device], offset)

    def call(self, device: int, site: int, operands: Sequence[int], results: Sequence[int], times: int = 1) -> int:
        """Run a site's routine on a device; blocks. The Status."""
        sent, received = ((ctypes.c_uint64 * max(1, len(o)))(*o) for o in (operands, results))
        return self.code.loops[site](
            self.contexts[device].address, times, ctypes.addressof(sent), ctypes.addressof(received)
        )

    def run(self, calls: Sequence[Callable[[], int]], seconds: float = 20) -> list[int | None]:
        """Run one callable a device, each in its thread; waits that last are aborted after `seconds` (None: stuck)."""
        results: list[int | None] = [None] * len(calls)

        def body(i: int) -> None:
            results[i] = calls[i]()

        threads = [threading.Thread(target=body, args=(i,), daemon=True) for i in range(len(calls))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds)
        if any(thread.is_alive() for thread in threads):
            self.release()
            for thread in threads:
                thread.join(seconds)
        return results

    def release(self) -> list[int]:
        """Set the abort flag, and wake until no device waits."""
        words = SharedWords(memoryview(self.control))
        try:
            words.store(control_words.H_ABORT, Status.ABORTED)
            return release_waits(words)
        finally:
            words.close()

    def record(self, device: int, field: int) -> int:
        at = control_words.record_offset(device) + field
        return int.from_bytes(self.control[at : at + 4], "little")


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def layout(shapes: Sequence[Shape], start: int = 64) -> tuple[list[int], int]:
    """64-byte aligned offsets of buffers one behind the other, and the end."""
    offsets = []
    for shape in shapes:
        offsets.append(start)
        start += (shape.byte_size + 63) // 64 * 64 + 64
    return offsets, start


def leaves(shape: Shape) -> list[Shape]:
    return list(shape.leaves())
