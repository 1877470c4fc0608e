"""The compiler's side of programs whose kernels run on a GPU: this processor's code, which launches them.

Entry, loops, branches and communication are code of this processor. A kernel that has a form for a grid is an import,
whose function makes its launches.
"""

from __future__ import annotations

from functools import cache
from typing import cast

from llvmlite import ir

from distxla.ir.instruction import Instruction
from distxla.targets.code import CodeTarget
from distxla.targets.grid import GridTarget
from distxla.targets.nvptx.code import code_for
from distxla.targets.nvptx.emulator.prepare import prepare
from distxla.targets.registry import native_target

ARCHITECTURE = "sm_90"  # whose kernels the emulator runs; it knows all instructions of theirs


class _Launching:
    """The differences from the processor's own code."""

    name = "nvptx"
    imports_kernels = False

    def kernel_import(self, instruction: Instruction, number: int) -> str | None:
        return f"distxla.launch.{number}"

    @property
    def grid(self) -> GridTarget:
        return code_for(ARCHITECTURE)

    def finish_grid(self, module: ir.Module) -> object:
        """The kernels for the emulator."""
        return prepare(str(code_for(ARCHITECTURE).parse(module)), checked=False)


@cache
def launching_code() -> CodeTarget:
    """`targets.code.CodeTarget`, which inherits everything else from this processor's."""
    native = type(native_target().code)
    return cast(CodeTarget, type("LaunchingCode", (_Launching, native), {})())


__all__ = ["ARCHITECTURE", "launching_code"]
