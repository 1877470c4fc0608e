"""Calls of the functions that compute one instruction each on this processor, and these functions."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from functools import reduce

from llvmlite import ir

from distxla.compiler.entry.fill_unwritten import fill
from distxla.compiler.entry.function_body import FunctionBody
from distxla.compiler.entry.watching import Watching
from distxla.compiler.lower.kernels import KernelFunction, declare_kernel, emit_kernel_function, kernel_key
from distxla.compiler.plan.buffers import Buffer, Kernel, MemoryRegion, Plan
from distxla.emit.native_function import I1, I64, memcpy
from distxla.ir.module import Module
from distxla.ir.structure import Structure
from distxla.program.artifact import ImportedKernel
from distxla.targets.code import CodeModule


class KernelCalls:
    """Emits the calls of kernels, and the kernels themselves once each.

    scratch_bytes: the most that one of the kernels needs, behind the plan's arena.  imported: those that the target
    runs itself.  fills: whether scratch memory is filled before each call."""

    def __init__(
        self,
        llvm_module: CodeModule,
        module: Module,
        structure: Structure,
        plan: Plan,
        watching: Watching | None,
        *,
        fills: bool,
    ) -> None:
        self._llvm_module, self._module, self._structure = llvm_module, module, structure
        self._plan, self._watching, self._fills = plan, watching, fills
        self._kernels: dict[Hashable, KernelFunction] = {}
        self.imported: list[ImportedKernel] = []
        self.scratch_bytes = 0

    def emit(self, body: FunctionBody, step: Kernel) -> None:
        kernel = self._function(step)
        self.scratch_bytes = max(self.scratch_bytes, kernel.scratch_bytes)
        leaves = [[b for b in each if b.region is not MemoryRegion.NONE] for each in (step.operands, step.results)]
        operands, results = ([body.pointer(buffer) for buffer in each] for each in leaves)
        scratch = Buffer(kernel.scratch_bytes, MemoryRegion.ARENA, self._plan.arena_bytes)
        if self._fills:
            fill(body, (scratch,))
        arguments = [body.context, *operands, *results, body.pointer(scratch)]
        if step.same_places and not kernel.fails:  # the target's own kernels read all before they write
            self._emit_in_place_or_apart(body, step, operands, results, arguments)
            return
        returned = body.builder.call(kernel.function, arguments)
        if kernel.fails:
            body.fail_unless_zero(returned)
        if self._watching is not None:
            self._watching.kernel_returns(kernel.watched, returned)

    def _emit_in_place_or_apart(
        self,
        body: FunctionBody,
        step: Kernel,
        operands: Sequence[ir.Value],
        results: Sequence[ir.Value],
        arguments: Sequence[ir.Value],
    ) -> None:
        """Where the caller has given an operand's place to a result, the others are copied to theirs."""
        builder, sizes = body.builder, [b.size for b in step.results if b.region is not MemoryRegion.NONE]
        pairs = [(operands[k], results[r], sizes[r]) for k, r in step.same_places]
        given = [builder.icmp_unsigned("==", source, target) for source, target, _ in pairs]
        with builder.if_else(reduce(builder.or_, given)) as (in_place, apart):
            with in_place:
                for (source, target, size), same in zip(pairs, given) if len(pairs) > 1 else ():
                    with builder.if_then(builder.not_(same)):
                        builder.call(memcpy(self._llvm_module), [target, source, I64(size), I1(0)])
                builder.call(self._function(step, in_place=True).function, arguments)
            with apart:
                builder.call(self._function(step).function, arguments)

    def _function(self, step: Kernel, *, in_place: bool = False) -> KernelFunction:
        """The function of the step's instruction; instructions that differ in names only share it."""
        key, computation, instruction = kernel_key(self._structure, step), step.computation, step.instruction
        key = (key, in_place) if in_place else key
        watched = self._watching is not None and self._watching.looks_at(step)
        key = (key, "watched") if watched else key
        if key not in self._kernels:
            symbol = self._llvm_module.target.kernel_import(instruction, len(self.imported))
            if symbol is not None:
                operands = tuple(o.shape for o in computation.operands(instruction))
                self.imported.append(ImportedKernel(symbol, instruction, operands))
                self._kernels[key] = declare_kernel(self._llvm_module, self.imported[-1])
        if key not in self._kernels:
            name = re.sub(r"[^A-Za-z0-9_.]", "_", instruction.name)
            name = f"kernel_{len(self._kernels)}_{name}"
            kernel = emit_kernel_function(
                self._llvm_module, self._module, step, name, in_place=in_place, watched=watched
            )
            kernel.function.linkage = "internal"
            if max((shape.size for shape in instruction.shape.leaves()), default=0) > 1:
                # A call costs nothing beside a loop; a copy of the loop in the entry costs time to compile.
                kernel.function.attributes.add("noinline")
            self._kernels[key] = kernel
        return self._kernels[key]
