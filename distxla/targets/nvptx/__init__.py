"""NVIDIA's GPUs.

The entry computation stays code of this machine's processor, which also waits for other devices. Kernels are PTX, which
is assembled for one architecture. Their arrays are in the GPU's memory (program_memory.py), and are copied to and from
the host's where the plan says (compiler/plan/transfers.py); collectives move them between GPUs (exported_blocks.py).
The entry itself calls the driver (host_calls.py). With DISTXLA_GPU_DRIVER=emulated this processor runs kernels, thread
by thread, in memory that stands for a GPU's.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distxla.targets.code import CodeTarget
    from distxla.targets.target import Loader

DEVICE_FILE = "/dev/nvidiactl"  # which every process opens that uses NVIDIA's driver


class NvptxTarget:
    """`targets.target.Target`."""

    name = "nvptx"
    uses_gpus = True
    variables = ("DISTXLA_GPU_DRIVER", "DISTXLA_GPU_COMMUNICATION", "DISTXLA_CUBLAS", "CUDA_VISIBLE_DEVICES")

    @property
    def backend(self) -> str | None:
        """`gpu` where a driver was chosen, or NVIDIA's is there: whether it works is seen when it is used."""
        return "gpu" if os.environ.get("DISTXLA_GPU_DRIVER") or os.path.exists(DEVICE_FILE) else None

    @property
    def variant(self) -> str:
        """The driver, the architecture, and through which memory collectives exchange arrays; DriverError where there
        is no GPU."""
        from distxla.targets.nvptx.architectures import chosen_architecture
        from distxla.targets.nvptx.driver.choice import chosen
        from distxla.targets.nvptx.placement import communicates_on_gpu

        exchange = "through GPUs" if communicates_on_gpu() else "through the host"
        return f"{chosen()} {chosen_architecture()} {exchange}"

    @property
    def code(self) -> CodeTarget:
        from distxla.targets.nvptx.host_code import launching_code

        return launching_code()

    @property
    def loader(self) -> Loader:
        from distxla.targets.nvptx import load

        return load


TARGET = NvptxTarget()
