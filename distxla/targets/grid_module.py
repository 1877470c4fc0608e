"""LLVM modules of kernels that run on a grid, which know the target they are for."""

from __future__ import annotations

from typing import cast

from llvmlite import ir

from distxla.errors import InternalError
from distxla.targets.code import CodeModule, CodeTarget
from distxla.targets.grid import GridTarget


class GridModule(CodeModule):
    """LLVM IR for kernels that run on a grid."""

    def __init__(self, name: str, target: GridTarget) -> None:
        super().__init__(name, cast(CodeTarget, target))  # kernels' emitters ask a CodeTarget for its processor only
        self.grid = target


def grid_of(builder: ir.IRBuilder) -> GridTarget:
    """The target of the grid module that the builder writes into."""
    module = builder.module
    if not isinstance(module, GridModule):
        raise InternalError("code for a grid is emitted into a module of no such target")
    return module.grid
