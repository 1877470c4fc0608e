"""NVIDIA's assembler `ptxas`, which runs without a GPU and without a driver."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm
import pytest

WHEEL, PLACE = "nvidia-cuda-nvcc-cu12", "nvidia/cuda_nvcc/bin/ptxas"
ARCHITECTURES = {"sm_75": "+ptx63", "sm_80": "+ptx70", "sm_90": "+ptx80", "sm_100": "+ptx86"}  # and the PTX they need


@cache
def ptxas() -> str | None:
    """The assembler's path: of the wheel, else of a CUDA toolkit; None where there is none."""
    try:
        found = Path(str(importlib.metadata.distribution(WHEEL).locate_file(PLACE)))
    except importlib.metadata.PackageNotFoundError:
        return shutil.which("ptxas")
    if not os.access(found, os.X_OK):  # some installers unpack it without the permission
        copy = Path(tempfile.mkdtemp(prefix="distxla-ptxas-")) / "ptxas"
        shutil.copy(found, copy)
        copy.chmod(0o700)
        found = copy
    return str(found)


needs_ptxas = pytest.mark.skipif(ptxas() is None, reason=f"no ptxas: the wheel {WHEEL} is not installed")


def ptx_of(text: str, architecture: str) -> str:
    """PTX of a device module's LLVM IR."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("nvptx64-nvidia-cuda")
    machine = target.create_target_machine(cpu=architecture, features=ARCHITECTURES[architecture], opt=2)
    module = llvm.parse_assembly(text)
    module.verify()
    return str(machine.emit_assembly(module))


def assemble(ptx: str, architecture: str) -> bytes:
    """The cubin; AssertionError with the assembler's words if it refuses the PTX."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "kernels.cubin")
        Path(folder, "kernels.ptx").write_text(ptx)
        command = [str(ptxas()), "-fmad=false", f"-arch={architecture}", "-o", str(result), f"{folder}/kernels.ptx"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"ptxas for {architecture}: {done.stderr or done.stdout}"
        return result.read_bytes()
