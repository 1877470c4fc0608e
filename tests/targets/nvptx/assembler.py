"""NVIDIA's assembler, which runs without a GPU and without a driver, in tests."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest

from distxla.targets.nvptx import assembler

ARCHITECTURES = {"sm_75": "+ptx63", "sm_80": "+ptx70", "sm_90": "+ptx80", "sm_100": "+ptx86"}  # and the PTX they need
needs_assembler = pytest.mark.skipif(
    assembler.assembler() is None,
    reason=f"no assembler: none of {', '.join((*assembler.PTXAS, *assembler.LINKERS))} is installed",
)


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
    """The cubin; CompileError with the assembler's words if it refuses the PTX."""
    return assembler.assemble(ptx, architecture)[0]
