"""x86-64 under Linux: object code by LLVM, its image, instructions, libraries, and the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distxla.targets.code import CodeTarget
    from distxla.targets.target import Host, Loader


class X86Target:
    """`targets.target.Target`."""

    name = "x86_64"
    uses_gpus = False
    backend = "cpu"
    variant = ""
    variables = ()

    @property
    def code(self) -> CodeTarget:
        from distxla.targets.x86_64.code import CODE

        return CODE

    @property
    def loader(self) -> Loader:
        from distxla.targets.native import load

        return load

    @property
    def host(self) -> Host:
        from distxla.targets.native import host

        return host


TARGET = X86Target()
