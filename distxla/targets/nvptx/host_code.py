"""The compiler's side of programs whose kernels run on a GPU: this processor's code, which launches them.

Entry, loops, branches and communication are code of this processor. Where a kernel has a form for a grid, it calls the
driver.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import cast

from llvmlite import ir

from distxla.targets.code import CodeTarget
from distxla.targets.grid import GridTarget
from distxla.targets.nvptx.architectures import chosen_architecture
from distxla.targets.nvptx.assembler import assemble, assembler
from distxla.targets.nvptx.code import code_for
from distxla.targets.nvptx.device_code import DeviceCode
from distxla.targets.nvptx.driver.choice import chosen, is_emulated
from distxla.targets.nvptx.driver.emulated.kernels import packed
from distxla.targets.nvptx.emulator.prepare import prepare
from distxla.targets.nvptx.host_calls import HostCalls
from distxla.targets.nvptx.jit_linker import LinkerError
from distxla.targets.nvptx.placement import communicates_on_gpu
from distxla.targets.registry import native_target


class _Launching:
    """The differences from the processor's own code."""

    name = "nvptx"
    imports_kernels = False

    @property
    def grid(self) -> GridTarget:
        return code_for(chosen_architecture())

    @property
    def grid_calls(self) -> HostCalls:
        return HostCalls()

    @property
    def communicates_on_grid(self) -> bool:
        return communicates_on_gpu()

    def finish_grid(self, module: ir.Module) -> DeviceCode:
        """The kernels for the driver that the environment asks for, assembled where there is an assembler."""
        driver, architecture = chosen(), chosen_architecture()
        code = code_for(architecture)
        parsed = code.parse(module)
        if is_emulated(driver):
            return DeviceCode(driver, architecture, packed(prepare(str(parsed), checked=False)))
        code.optimise(parsed)
        text = code.emit_assembly(parsed)
        cubin = b""  # then the driver assembles the text
        if assembler() is not None:
            with suppress(LinkerError):
                cubin = assemble(text, architecture)[0]
        return DeviceCode(driver, architecture, text.encode(), cubin)


@cache
def launching_code() -> CodeTarget:
    """`targets.code.CodeTarget`, which inherits everything else from this processor's."""
    native = type(native_target().code)
    return cast(CodeTarget, type("LaunchingCode", (_Launching, native), {})())
