"""Code of one LLVM module in this process, by the project's own linker and loader.

LLVM's loader puts code and constants wherever the address space has gaps. In a process of many tests these can be
gigabytes apart, and a relocation that does not reach ends the process.
"""

from __future__ import annotations

import llvmlite.binding as llvm

from distxla.ir.counts import Counts
from distxla.program.artifact import CompiledProgram
from distxla.targets.native import finish
from distxla.targets.native.load import LoadedImage, load_image
from distxla.targets.x86_64.link import link


def loaded(module: llvm.ModuleRef) -> LoadedImage:
    """The optimised module's machine code, ready to run; CompileError for an import that no library has."""
    image = link([finish.emit_object(module)])
    return load_image(CompiledProgram("test", image, Counts(1, 1), "x86_64"))
