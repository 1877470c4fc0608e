"""The compiler's side of any processor under Linux; targets/code.py documents the methods."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from distxla.errors import InternalError
from distxla.ir.instruction import Instruction
from distxla.targets.native import finish, libraries
from distxla.targets.native.system_calls import SystemCalls


class NativeCode(SystemCalls):
    """The part of `targets.code.CodeTarget` that does not depend on the processor."""

    imports_kernels = False

    def warm_up(self) -> None:
        # the first pass pipeline and the first object file initialise tables of LLVM
        finish.compile_object("define i32 @warm(i32 %x) {\n  %y = add i32 %x, 1\n  ret i32 %y\n}")

    def describe(self, module: ir.Module) -> None:
        finish.describe(module)

    def parse(self, module: ir.Module | str) -> Any:
        return finish.parse(module)

    def optimise(self, parsed: Any) -> None:
        finish.optimise(parsed)

    def emit_object(self, parsed: Any) -> bytes:
        return finish.emit_object(parsed)

    def emit_object_quickly(self, parsed: Any) -> bytes:
        return finish.emit_object_quickly(parsed)

    def emit_assembly(self, parsed: Any) -> str:
        return finish.emit_assembly(parsed)

    def kernel_import(self, instruction: Instruction, number: int) -> str | None:
        return None

    @property
    def grid(self) -> None:
        return None

    @property
    def grid_calls(self) -> None:
        return None

    @property
    def communicates_on_grid(self) -> bool:
        return False

    def finish_grid(self, module: ir.Module) -> object:
        raise InternalError("this processor has no grid")

    def import_name(self, routine: str) -> str:
        return libraries.import_name(routine)
