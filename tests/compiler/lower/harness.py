"""Compile one instruction's kernel in this process and run it on NumPy arrays."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from distxla.compiler.lower.kernels import emit_kernel_function
from distxla.compiler.plan.buffers import Kernel as Step
from distxla.ir import unwritten
from distxla.ir.module import Module
from distxla.ir.shape import Shape
from distxla.program.execution_context import ExecutionContext
from distxla.targets.code import CodeModule
from distxla.targets.native import finish
from distxla.targets.registry import native_target
from distxla.text.parser import parse_module
from tests.compiler.lower.loaded import loaded

Array = np.ndarray[Any, Any]


class Kernel:
    """The compiled kernel of the root instruction of a module's entry computation."""

    def __init__(self, text: str | Module, instruction: str | None = None) -> None:
        module = parse_module(text, "<test>") if isinstance(text, str) else text
        computation = module.entry_computation
        self.root = computation[instruction or computation.root]
        self.operands = [computation[o].shape for o in self.root.operands]
        llvm_module = CodeModule("test", native_target().code)
        kernel = emit_kernel_function(llvm_module, module, Step(computation, self.root, (), ()), "kernel")
        self.scratch_bytes = kernel.scratch_bytes
        self.text = str(llvm_module)
        parsed = finish.parse(llvm_module)
        finish.optimise(parsed)
        self.optimised = str(parsed)
        code = loaded(parsed)
        weakref.finalize(self, code.close)
        leaves = [s for o in self.operands for s in o.leaves()] + list(self.root.shape.leaves())
        prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(leaves) + 2))
        self.function = prototype(code.address_of("kernel"))

    def __call__(self, *arrays: Any, replica: int = 0, partition: int = 0) -> Any:
        operands = [aligned(np.asarray(a, dtype=s.dtype.dtype)) for a, s in zip(arrays, self.operands, strict=True)]
        results = [empty(s) for s in self.root.shape.leaves()]
        self.run(operands, results, replica, partition)
        return results[0] if not self.root.shape.is_tuple else tuple(results)

    def run(self, operands: Sequence[Array], results: Sequence[Array], replica: int = 0, partition: int = 0) -> None:
        """Call it on arrays that are aligned already."""
        context = ExecutionContext(replica * (partition + 1) + partition, [None], partitions=partition + 1)
        scratch = aligned(unwritten.empty([self.scratch_bytes + 64], np.uint8))
        pointers = [a.ctypes.data for a in (*operands, *results)]
        self.function(context.address, *pointers, scratch.ctypes.data)


def aligned(array: Array) -> Array:
    """A copy at a 64-byte boundary."""
    raw = np.empty(array.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def empty(shape: Shape) -> Array:
    """A result buffer, filled with a pattern that no test expects."""
    raw = np.full(shape.byte_size + 64, 0x5B, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + shape.byte_size].view(shape.dtype.dtype).reshape(shape.dims)


def elementwise(expression: str, shapes: Sequence[str], result: str) -> str:
    """Module text whose entry is one fusion of `expression`, an instruction over p0, p1, …"""
    parameters = [f"  p{i} = {s} parameter({i})" for i, s in enumerate(shapes)]
    names = ", ".join(f"p{i}" for i in range(len(shapes)))
    return "\n".join(
        [
            "HloModule test",
            "fused {",
            *parameters,
            f"  ROOT r = {result} {expression}",
            "}",
            "ENTRY main {",
            *parameters,
            f"  ROOT f = {result} fusion({names}), kind=kLoop, calls=fused",
            "}",
        ]
    )
