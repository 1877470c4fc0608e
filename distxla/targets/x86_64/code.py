"""The compiler's side of x86-64 under Linux; targets/code.py documents the methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from distxla.errors import InternalError
from distxla.ir.instruction import Instruction
from distxla.targets.image import Image
from distxla.targets.native import libraries, link
from distxla.targets.processor import Processor
from distxla.targets.x86_64 import finish
from distxla.targets.x86_64.fibers import Fibers
from distxla.targets.x86_64.instructions import Instructions
from distxla.targets.x86_64.tuning import host_processor


class Code(Instructions, Fibers):
    """`targets.code.CodeTarget`."""

    name = "x86_64"
    imports_kernels = False

    @property
    def processor(self) -> Processor:
        return host_processor()

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

    def link(self, objects: Sequence[bytes]) -> Image:
        return link.link(objects)

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


CODE = Code()
