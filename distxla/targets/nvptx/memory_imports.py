"""The names by which programs import the functions of program_memory.py. Light: the loader has them without LLVM."""

from __future__ import annotations

from distxla.targets.device_memory import DeviceMemoryImports

DEVICE_MEMORY = DeviceMemoryImports(
    begin="distxla.gpu.begin",
    end="distxla.gpu.end",
    to_device="distxla.gpu.to_device",
    to_host="distxla.gpu.to_host",
    copy="distxla.gpu.copy",
)

__all__ = ["DEVICE_MEMORY"]
