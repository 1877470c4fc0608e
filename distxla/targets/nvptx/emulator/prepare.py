"""From a device module to an image that this machine's processor runs."""

from __future__ import annotations

import re

from llvmlite import ir

from distxla.errors import CompileError
from distxla.targets.code import CodeModule
from distxla.targets.nvptx.emulator.access import emit_checks
from distxla.targets.nvptx.emulator.device_text import rewrite
from distxla.targets.nvptx.emulator.intrinsics import emit_intrinsic
from distxla.targets.nvptx.emulator.prepared import PreparedModule
from distxla.targets.nvptx.emulator.runtime import SWITCH, Runtime
from distxla.targets.nvptx.emulator.text import address_space
from distxla.targets.registry import native_target


def prepare(text: str, *, checked: bool = False, races: bool = False) -> PreparedModule:
    """Compile a device module. Loads LLVM.

    checked: loads, stores and copies are checked: whether they lie in the memory that the launch names, and their
    alignment.  races: so are two threads that access one word of shared memory with no barrier in between; implies
    `checked`.  Raises CompileError for what the emulator doesn't know, RuntimeError for text that isn't LLVM IR.
    """
    target = native_target()
    code = target.code
    checked = checked or races
    device = code.parse(text)
    host = code.parse(CodeModule("host", code))
    rewritten = rewrite(device, host.triple, host.data_layout, checked=checked)
    runtime = Runtime(code)
    runtime.emit_waiting()
    for name in sorted(rewritten.intrinsics):
        emit_intrinsic(runtime, name)
    runtime.emit_blocks()
    if any(kernel.waits for kernel in rewritten.kernels.values()):
        runtime.emit_scheduler()
    if checked:
        emit_checks(runtime, rewritten.granule if races else None)
    for kernel in rewritten.kernels.values():
        parameters = [_type(kernel.name, parameter) for parameter in kernel.parameters]
        runtime.emit_launcher(kernel.name, parameters, fibers=kernel.waits)
    switch = "".join(f'module asm "{line}"\n' for line in code.fiber_switch(SWITCH).splitlines())
    linked = code.parse(rewritten.text + switch)
    linked.link_in(code.parse(runtime.module))
    linked.verify()
    return PreparedModule(
        image=code.link([code.emit_object_quickly(linked)]),
        target=target.name,
        kernels=rewritten.kernels,
        shared=tuple(rewritten.shared),
        constants=tuple(rewritten.constants),
        sites=tuple(rewritten.sites),
        checked=checked,
        granule=rewritten.granule if races else 0,
    )


def _type(kernel: str, parameter: str) -> ir.Type:
    if parameter.startswith("ptr"):
        return ir.PointerType(addrspace=address_space(parameter))
    if found := re.fullmatch(r"i(\d+)", parameter):
        return ir.IntType(int(found[1]))
    known = {"float": ir.FloatType(), "double": ir.DoubleType()}
    if parameter not in known:
        raise CompileError(f"kernel {kernel} has a parameter of type {parameter}: no number and no pointer")
    return known[parameter]
