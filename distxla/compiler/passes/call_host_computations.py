"""Call the computations that a module wants run on the host."""

from __future__ import annotations

from typing import ClassVar

from distxla.ir.module import Module
from distxla.ops.custom_calls.host_execute import with_host_calls
from distxla.rewrites.step import Pass


class CallHostComputations(Pass):
    """Let each device compute the module's host computations."""

    name: ClassVar[str] = "call-host-computations"

    def run(self, module: Module) -> Module:
        return with_host_calls(module)
