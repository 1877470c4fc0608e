"""Calls of the target's functions for a memory of the kernels' own (targets/device_memory.py)."""

from __future__ import annotations

from llvmlite import ir

from distxla.compiler.lower.function_body import FunctionBody
from distxla.compiler.lower.scalar_expression import intrinsic
from distxla.compiler.plan.buffers import Copy, Transfer
from distxla.targets.device_memory import DeviceMemoryImports

I32, I64, POINTER = ir.IntType(32), ir.IntType(64), ir.PointerType()


class DeviceMemory:
    """Emits the calls; each ends the program's call unless it returns OK."""

    def __init__(self, llvm_module: ir.Module, imports: DeviceMemoryImports) -> None:
        self._llvm_module, self._imports = llvm_module, imports

    def emit_begin(self, body: FunctionBody) -> None:
        self._call(body, self._imports.begin)

    def emit_end(self, body: FunctionBody) -> None:
        self._call(body, self._imports.end)

    def emit(self, body: FunctionBody, step: Transfer | Copy) -> None:
        """A copy between the memories, or within the kernels' own."""
        if isinstance(step, Copy):
            places = (body.pointer(step.target), body.pointer(step.source))
            self._call(body, self._imports.copy, *places, I64(step.source.size))
        else:
            name = self._imports.to_device if step.to_device else self._imports.to_host
            self._call(body, name, body.pointer(step.buffer), I64(step.buffer.size))

    def _call(self, body: FunctionBody, name: str, *arguments: ir.Value) -> None:
        function = intrinsic(self._llvm_module, name, I32, [POINTER, *(a.type for a in arguments)])
        body.fail_unless_zero(body.builder.call(function, [body.context, *arguments]))


__all__ = ["DeviceMemory"]
