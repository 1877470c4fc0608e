"""The compiler's side: this processor's, but for kernels, which become imports."""

from __future__ import annotations

from functools import cache
from typing import cast

from distxla.ir.instruction import Instruction
from distxla.ops.custom_calls.user import is_user_target
from distxla.targets.code import CodeTarget
from distxla.targets.registry import native_target


class _Interpreting:
    """The differences from the processor's own code."""

    name = "interpreted"
    imports_kernels = True

    def kernel_import(self, instruction: Instruction, number: int) -> str | None:
        """Custom-calls of the user are no kernels of ours: they stay calls of their C functions."""
        target = getattr(instruction.op, "custom_call_target", None)
        return None if target is not None and is_user_target(target) else f"distxla.kernel.{number}"


@cache
def interpreting_code() -> CodeTarget:
    """`targets.code.CodeTarget`, which inherits everything else from this processor's."""
    native = type(native_target().code)
    return cast(CodeTarget, type("InterpretingCode", (_Interpreting, native), {})())
