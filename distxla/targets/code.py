"""The code generator's interface of a target, and LLVM modules that know the target they are for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from llvmlite import ir

from distxla.errors import InternalError
from distxla.ir.instruction import Instruction
from distxla.program.image import Image
from distxla.targets.grid import GridTarget
from distxla.targets.grid_calls import GridCalls
from distxla.targets.processor import Processor


class CodeTarget(Protocol):
    """From LLVM IR to an image, the instructions that LLVM has no word for, and libraries. One object a process."""

    @property
    def name(self) -> str:
        """The target's."""

    @property
    def processor(self) -> Processor:
        """Of this machine."""

    # --- from IR to an image

    def warm_up(self) -> None:
        """Do the part that every compilation needs, so that the first one doesn't wait for it."""

    def describe(self, module: ir.Module) -> None:
        """Write triple and data layout into the module."""

    def parse(self, module: ir.Module | str) -> Any:
        """Text or llvmlite module as a verified LLVM module; RuntimeError with LLVM's message if it is not valid."""

    def optimise(self, parsed: Any) -> None:
        """Scalar optimisation and vectorisation, in place."""

    def emit_object(self, parsed: Any) -> bytes:
        """Object code in the target's format."""

    def emit_object_quickly(self, parsed: Any) -> bytes:
        """Slower object code, made in a tenth of the time: for code that runs rarely. Changes `parsed`."""

    def emit_assembly(self, parsed: Any) -> str:
        """Assembler text."""

    def link(self, objects: Sequence[bytes]) -> Image:
        """One position-independent image; CompileError for code that no image can hold."""

    # --- kernels and libraries

    @property
    def imports_kernels(self) -> bool:
        """Whether programs need their module, from which the target runs kernels itself."""

    def kernel_import(self, instruction: Instruction, number: int) -> str | None:
        """The import that is called for a kernel, in place of code that the compiler emits; None: emit the code.

        Its function gets a kernel's arguments (lower/kernels.py) and returns a Status, i32. number: of the kernel.
        """

    @property
    def grid(self) -> GridTarget | None:
        """What kernels are made for that run on a grid; None where they run on this processor."""

    @property
    def grid_calls(self) -> GridCalls | None:
        """How programs launch those kernels, and copy to and from their memory; None without a grid."""

    @property
    def communicates_on_grid(self) -> bool:
        """Whether devices of one host exchange arrays between the memories of those kernels, not by the host's."""

    def finish_grid(self, module: ir.Module) -> object:
        """Those kernels as the target's loader wants them (GridCode.device_code)."""

    def import_name(self, routine: str) -> str:
        """The import name of `blas.NAME` (C interface), `lapack.NAME` (Fortran) or any other function."""

    # --- waiting, and the clocks. `builder` ends behind the emitted code; pointers are to words in this process.

    def emit_spin(self, builder: ir.IRBuilder) -> None:
        """Tell the core that a loop only waits."""

    def emit_yield(self, builder: ir.IRBuilder) -> None:
        """Let another thread have the core."""

    def emit_sleep(
        self, builder: ir.IRBuilder, word: ir.Value, expected: ir.Value, timeout: ir.Value | None = None
    ) -> ir.Value:
        """Sleep while the u32 at `word` is `expected`, until a wake, a signal or the timeout; i64, negative errno.

        timeout: address of i64 seconds and i64 nanoseconds.
        """

    def emit_wake(self, builder: ir.IRBuilder, word: ir.Value, most: ir.Value) -> None:
        """Wake at most so many (i32) of those that sleep on the u32 at `word`, in any process."""

    def emit_cycles(self, builder: ir.IRBuilder) -> ir.Value:
        """The cycle counter, u64: constant rate, the same on all cores of the machine."""

    @property
    def cycles_per_us(self) -> int:
        """The usual rate of that counter, within a factor of two: for limits of time, not for measuring it."""

    def emit_monotonic(self, builder: ir.IRBuilder, time: ir.Value) -> None:
        """Store CLOCK_MONOTONIC at `time`: i64 seconds, i64 nanoseconds."""

    # --- fibers: stacks of their own, between which one thread switches; one that doesn't run is its stack pointer

    def fiber_switch(self, name: str) -> str:
        """Assembler text, for the module, that defines void NAME(ptr place, i64 pointer): leave the stack that this
        runs on, store its pointer at `place`, and go on with another one."""

    def emit_fiber(self, builder: ir.IRBuilder, top: ir.Value, function: ir.Value) -> ir.Value:
        """The pointer (i64) of a new stack, the first switch to which calls `function`: without arguments, and it must
        not return. top: where the stack ends, i64, a multiple of 16."""

    # --- memory

    @property
    def pair_type(self) -> ir.Type:
        """Two u64, which one load or store moves at a multiple of 16 bytes."""

    @property
    def line_type(self) -> ir.Type:
        """Bytes of one load and one store where whole lines are copied past the caches."""

    def emit_streamed_store(self, builder: ir.IRBuilder, line: ir.Value, place: ir.Value) -> None:
        """Store a line at a multiple of its size and leave it out of the caches."""

    def emit_streamed_fence(self, builder: ir.IRBuilder) -> None:
        """Order all streamed stores before every later store."""

    @property
    def fault_address_offset(self) -> int:
        """Where the information that a signal handler gets has the address of the fault, in bytes."""


class CodeModule(ir.Module):  # type: ignore[misc]
    """LLVM IR for a target, as LLVM's own modules know their triple."""

    def __init__(self, name: str, target: CodeTarget) -> None:
        super().__init__(name)
        self.target = target


def target_of(builder: ir.IRBuilder) -> CodeTarget:
    """The target of the module that the builder writes into."""
    module = builder.module
    if not isinstance(module, CodeModule):
        raise InternalError("code for a processor is emitted into a module that has no target")
    return module.target
