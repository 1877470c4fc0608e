"""The compiler's side of any processor under Linux; targets/code.py documents the methods."""

from __future__ import annotations

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

    describe = staticmethod(finish.describe)
    parse = staticmethod(finish.parse)
    optimise = staticmethod(finish.optimise)
    emit_object = staticmethod(finish.emit_object)
    emit_object_quickly = staticmethod(finish.emit_object_quickly)
    emit_assembly = staticmethod(finish.emit_assembly)
    import_name = staticmethod(libraries.import_name)

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
