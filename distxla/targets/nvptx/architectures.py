"""The architectures that kernels are made for."""

from __future__ import annotations

from distxla.errors import ArgumentError
from distxla.targets.nvptx.driver.choice import chosen, is_emulated, open_driver
from distxla.targets.nvptx.driver.errors import DriverError, chosen_by_environment

# the first version of PTX that knows an architecture, as LLVM names features
VERSIONS = {"sm_75": "ptx63", "sm_80": "ptx70", "sm_90": "ptx78", "sm_100": "ptx86"}
EMULATED_ARCHITECTURE = "sm_90"  # whose kernels the emulator runs; it knows all instructions of theirs


def chosen_architecture() -> str:
    """The newest one whose kernels all GPUs run of the driver that the environment asks for.

    DriverError where there is no GPU.
    """
    if is_emulated(chosen()):
        return EMULATED_ARCHITECTURE
    gpus = open_driver().gpus()
    if not gpus:
        raise DriverError(f"the driver lists no GPU{chosen_by_environment()}")
    return newest_for(min(gpu.architecture for gpu in gpus))


def newest_for(architecture: tuple[int, int]) -> str:
    """The newest architecture whose kernels run on a GPU of this one, (9, 0) for sm_90; ArgumentError for none."""
    number = 10 * architecture[0] + architecture[1]
    known = [name for name in VERSIONS if int(name.removeprefix("sm_")) <= number]
    if not known:
        raise ArgumentError(f"GPU architecture sm_{number}: kernels are made for {', '.join(VERSIONS)}")
    return known[-1]


__all__ = ["VERSIONS", "chosen_architecture", "newest_for"]
