"""NVIDIA's assembler, which needs neither a GPU nor a driver: PTX to a cubin, and what each kernel takes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from distxla.errors import ArgumentError, CompileError
from distxla.lazy_dataclass import dataclass
from distxla.machine.processes import end_with_parent
from distxla.targets.nvptx.interfaces.packaged import packaged
from distxla.targets.nvptx.jit_linker import assemble_in_process

# the Python packages that bring it, and where it is in them
PTXAS = {"nvidia-cuda-nvcc-cu12": "nvidia/cuda_nvcc/bin/ptxas", "nvidia-cuda-nvcc": "nvidia/cu13/bin/ptxas"}
LINKERS = {
    "nvidia-nvjitlink-cu12": "nvidia/nvjitlink/lib/libnvJitLink.so.12",
    "nvidia-nvjitlink": "nvidia/cu13/lib/libnvJitLink.so.13",
}
OPTIONS = ("-fmad=false", "--verbose")  # a multiplication and an addition round twice, as on the processor
USED = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores.*?Used (\d+) registers([^\n]*)", re.DOTALL
)
SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class KernelUse:
    """What a kernel takes: registers a thread, bytes of shared memory a block, bytes a thread that registers lack."""

    name: str
    registers: int
    shared_bytes: int
    spilled_bytes: int

    def __str__(self) -> str:
        """A line for people."""
        return (
            f"{self.name}: {self.registers} registers, {self.shared_bytes} bytes of shared memory, "
            f"{self.spilled_bytes} bytes spilled"
        )


def assembler() -> str | None:
    """The path of ptxas, else of nvJitLink in a Python package; None where there is neither."""
    return ptxas() or packaged(LINKERS)


def ptxas() -> str | None:
    """The path of that of a Python package, else of the first one in PATH; None where there is none."""
    return packaged(PTXAS) or shutil.which("ptxas")


def assemble(ptx: str, architecture: str) -> tuple[bytes, tuple[KernelUse, ...]]:
    """The cubin, and its kernels in the PTX's order.

    Blocks for about as long as LLVM took to make the PTX.  ArgumentError where there is no assembler, LinkerError where
    nvJitLink can't be used, CompileError with the assembler's words if it refuses the PTX.
    """
    path = assembler()
    if path is None:
        raise ArgumentError(
            f"no assembler of kernels: install one of the Python packages {', '.join((*PTXAS, *LINKERS))}, or a CUDA "
            "toolkit with its bin/ in PATH"
        )
    by, run = ("ptxas", _by_ptxas) if Path(path).name == "ptxas" else ("nvJitLink", assemble_in_process)
    cubin, messages = run(path, ptx, architecture)
    if cubin is None:
        raise CompileError(f"{by} for {architecture}: {messages.strip()}")
    return cubin, _kernels(messages, ptx)


def _by_ptxas(path: str, ptx: str, architecture: str) -> tuple[bytes | None, str]:
    """The cubin, None if it refuses the PTX, and its messages."""
    with tempfile.TemporaryDirectory(prefix="distxla-ptxas-") as folder:
        source, result = Path(folder, "kernels.ptx"), Path(folder, "kernels.cubin")
        if not os.access(path, os.X_OK):  # some installers unpack it without the permission
            path = shutil.copy(path, folder)
            Path(path).chmod(0o700)
        source.write_text(ptx)
        command = [path, *OPTIONS, f"-arch={architecture}", "-o", str(result), str(source)]
        # the compile server is killed at the time limit
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=end_with_parent)
        return None if done.returncode else result.read_bytes(), done.stderr + done.stdout


def _kernels(messages: str, ptx: str) -> tuple[KernelUse, ...]:
    found = {}
    for name, spilled, registers, rest in USED.findall(messages):
        shared = SHARED.search(rest)
        found[name] = KernelUse(name, int(registers), int(shared[1]) if shared else 0, int(spilled))
    return tuple(sorted(found.values(), key=lambda use: ptx.index(f".entry {use.name}(")))


__all__ = ["KernelUse", "assemble", "assembler", "ptxas"]
