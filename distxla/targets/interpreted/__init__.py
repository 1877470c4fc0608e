"""The processor of this machine with interpreted kernels: tells a wrong plan from a wrong kernel.

Entry, loops, branches, copies and communication are this processor's code, and so are all places in memory.
Only a kernel's code is replaced, by a call of Python that computes its op's `evaluate`, on the same buffers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distxla.targets.code import CodeTarget
    from distxla.targets.target import Loader


class InterpretedTarget:
    """`targets.target.Target`."""

    name = "interpreted"
    uses_gpus = False
    backend = "interpreted"
    variant = ""
    variables = ()

    @property
    def code(self) -> CodeTarget:
        from distxla.targets.interpreted.code import interpreting_code

        return interpreting_code()

    @property
    def loader(self) -> Loader:
        from distxla.targets.interpreted import load

        return load


TARGET = InterpretedTarget()
