"""Programs that this version can execute, and those that it cannot, without compiling them."""

from __future__ import annotations

from distxla.compiler.obstacles import obstacles
from distxla.compiler.verify.visible_obstacles import refuse
from distxla.ir.module import Module


def require_executable(module: Module) -> None:
    """Raise what compiling the module would, UnsupportedOpError with its place, for instructions that it refuses."""
    refuse(module, obstacles(module))
