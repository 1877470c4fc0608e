"""LLVM for the host CPU: parse, verify, optimise, make object code.

Bad IR ends the process (LLVM is built with assertions), so this runs where an abort costs only a compilation.
"""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm
from llvmlite import ir

from distxla.targets.native.traits import own_traits

SPEED_LEVEL = 2  # level 3 takes longer and makes no faster loops of this generator's code


@cache
def target_machine(opt: int = 2) -> llvm.TargetMachine:
    """The host CPU, position-independent code.

    opt: LLVM's level of code generation; 0 compiles fastest.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # routines of transports hold system calls
    features = {**llvm.get_host_cpu_features(), **own_traits().llvm_features}
    flags = ",".join(("+" if on else "-") + name for name, on in sorted(features.items()))
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=flags, opt=opt, reloc="pic", codemodel="small"
    )


def describe(module: ir.Module) -> None:
    """Write into the module what it is for."""
    machine = target_machine()
    module.triple, module.data_layout = machine.triple, str(machine.target_data)


def parse(module: ir.Module | str) -> llvm.ModuleRef:
    """Text or llvmlite module as a verified LLVM module; RuntimeError with LLVM's message if it is not valid."""
    if isinstance(module, ir.Module):
        describe(module)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    return parsed


def optimise(module: llvm.ModuleRef) -> None:
    """Scalar optimisation, loop and superword vectorisation, in place."""
    options = llvm.create_pipeline_tuning_options(speed_level=SPEED_LEVEL)
    options.loop_vectorization = True
    options.slp_vectorization = True
    options.loop_interleaving = True
    # loops say themselves where they should be unrolled (loops.py): LLVM's own choice doubles the time to compile
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(target_machine(), options)
    builder.getModulePassManager().run(module, builder)


def emit_object(module: llvm.ModuleRef) -> bytes:
    """An ELF object."""
    return bytes(target_machine().emit_object(module))


def emit_object_quickly(module: llvm.ModuleRef) -> bytes:
    """An ELF object of code that is hardly optimised: values are in registers, instructions simplified."""
    machine = target_machine(opt=0)
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0)))
    return bytes(machine.emit_object(module))


def emit_assembly(module: llvm.ModuleRef) -> str:
    """Assembler text."""
    return str(target_machine().emit_assembly(module))


def compile_object(module: ir.Module | str) -> bytes:
    """Parse, verify, optimise and emit."""
    parsed = parse(module)
    optimise(parsed)
    return emit_object(parsed)
