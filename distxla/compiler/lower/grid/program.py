"""All kernels of a program for a grid, in one module: assembling many small ones takes far longer."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from distxla.compiler.lower.grid.grid_emitter import NoGridFormError
from distxla.compiler.lower.grid.kernel import emit_grid_kernel
from distxla.compiler.lower.grid.launches import GridKernel
from distxla.compiler.lower.kernels import kernel_key
from distxla.compiler.plan.buffers import Kernel, Plan
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.structure import Structure
from distxla.targets.grid import GridTarget
from distxla.targets.grid_module import GridModule


@dataclass(frozen=True)
class GridStep:
    """How one instruction is computed. kernel: None where the host has to, for the `reason`."""

    instruction: Instruction
    kernel: GridKernel | None
    reason: str = ""

    def __str__(self) -> str:
        """A line for people."""
        named = f"{self.instruction.name} ({self.instruction.opcode})"
        if self.kernel is None:
            return f"{named}: on the host, because {self.reason}"
        return f"{named}: {', '.join(map(str, self.kernel.launches))}"


@dataclass(frozen=True)
class GridProgram:
    """llvm_module: the kernels.  steps: one an instruction that a kernel computes, in the plan's order.
    kernels: by what their code depends on (lower/kernels.py, `kernel_key`); those of the host are missing."""

    llvm_module: GridModule
    steps: tuple[GridStep, ...]
    kernels: Mapping[Hashable, GridKernel]


def emit_grid_program(
    module: Module, plan: Plan, target: GridTarget, progress: Callable[[str], None] = lambda text: None
) -> GridProgram:
    """Emit the kernels of all steps; instructions that differ in names only share one.

    progress: called with the name of each instruction before it is lowered.  Raises as `emit_grid_kernel`, but for
    NoGridFormError.
    """
    grid_module, structure = GridModule(module.name, target), Structure(module)
    made: dict[Hashable, GridKernel | str] = {}
    steps: list[GridStep] = []
    for step in plan.walk():
        if not isinstance(step, Kernel):
            continue
        instruction = step.instruction
        progress(instruction.name)
        key = kernel_key(structure, step.computation, instruction)
        if key not in made:
            name = f"kernel_{len(made)}_{re.sub(r'[^A-Za-z0-9_]', '_', instruction.name)}"
            try:
                if _counts(step):
                    raise NoGridFormError("single integers, such as a loop's count, are read there")
                made[key] = emit_grid_kernel(grid_module, module, step.computation, instruction, name)
            except NoGridFormError as reason:
                made[key] = str(reason)
        found = made[key]
        if isinstance(found, str):
            steps.append(GridStep(instruction, None, found))
        else:
            steps.append(GridStep(instruction, found))
    kernels = {key: found for key, found in made.items() if isinstance(found, GridKernel)}
    return GridProgram(grid_module, tuple(steps), kernels)


def _counts(step: Kernel) -> bool:
    """Whether the kernel makes single integers and predicates of others, as conditions of loops and indices do."""
    operands = (operand.shape for operand in step.computation.operands(step.instruction))
    leaves = [leaf for shape in (*operands, step.instruction.shape) for leaf in shape.leaves() if leaf.is_array]
    return step.instruction.op.effects.is_free and all(
        not leaf.dims and not leaf.dtype.is_float and not leaf.dtype.is_complex for leaf in leaves
    )


__all__ = ["GridProgram", "GridStep", "emit_grid_program"]
