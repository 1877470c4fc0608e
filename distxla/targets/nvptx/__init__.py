"""NVIDIA's GPUs. Their kernels can be made, shown, and run by an emulator; no cluster runs on the hardware yet.

The entry computation stays code of this machine's processor. Kernels are PTX, which is assembled for one architecture.
With DISTXLA_GPU_DRIVER=emulated this processor runs them, thread by thread, in the memory of the host.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distxla.targets.code import CodeTarget
    from distxla.targets.target import Host, Loader


class NvptxTarget:
    """`targets.target.Target`."""

    name = "nvptx"

    @property
    def backend(self) -> str | None:
        """`gpu` where a driver was chosen that this version has."""
        return "gpu" if os.environ.get("DISTXLA_GPU_DRIVER") == "emulated" else None

    @property
    def code(self) -> CodeTarget:
        from distxla.targets.nvptx.host_code import launching_code

        return launching_code()

    @property
    def loader(self) -> Loader:
        from distxla.targets.nvptx import load

        return load

    @property
    def host(self) -> Host:
        from distxla.targets.registry import host

        return host()


TARGET = NvptxTarget()
