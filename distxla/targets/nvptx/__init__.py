"""NVIDIA's GPUs. So far their kernels can be made and shown; no cluster runs on them.

The entry computation stays code of this machine's processor. Kernels are PTX, which is assembled for one architecture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from distxla.targets.code import CodeTarget
    from distxla.targets.target import Host, Loader


class NvptxTarget:
    """`targets.target.Target`."""

    name = "nvptx"
    backend = None

    @property
    def code(self) -> CodeTarget:
        _refuse()

    @property
    def loader(self) -> Loader:
        _refuse()

    @property
    def host(self) -> Host:
        from distxla.targets.registry import host

        return host()


def _refuse() -> NoReturn:
    from distxla.errors import CompileError

    raise CompileError("programs for GPUs cannot be run yet; `distxla compile --emit ptx` shows their kernels")


TARGET = NvptxTarget()
