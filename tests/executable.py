"""Programs that this version can execute, and those that it cannot, without compiling them."""

from __future__ import annotations

from distxla.compiler.obstacles import obstacles
from distxla.ir.module import Module
from distxla.passes.obstacles import refuse


def require_executable(module: Module) -> None:
    """Raise what compiling the module would, UnsupportedOpError with its place, for instructions that it refuses."""
    refuse(module, obstacles(module))
