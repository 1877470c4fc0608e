"""All kernels of a program for a grid, in one module: assembling many small ones takes far longer."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping

from distxla.collectives.transports.seam import GridRound
from distxla.compiler.lower.grid.grid_emitter import NoGridFormError
from distxla.compiler.lower.grid.kernel import emit_grid_kernel
from distxla.compiler.lower.grid.launches import GridKernel
from distxla.compiler.lower.grid.rounds import emit_grid_round, round_key
from distxla.compiler.lower.kernels import kernel_key
from distxla.compiler.plan.buffers import Communicate, Kernel, Plan
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.structure import Structure
from distxla.lazy_dataclass import dataclass, field
from distxla.targets.grid import GridTarget
from distxla.targets.grid_module import GridModule

GridRounds = Callable[[Communicate], tuple[GridRound, ...] | None]


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
        launches = list(map(str, self.kernel.launches))
        for product in self.kernel.products:
            launches[product.first] = f"[product: {launches[product.first]}"
            launches[product.first + product.count - 1] += "]"
        return f"{named}: {', '.join(launches)}"


@dataclass(frozen=True)
class GridProgram:
    """llvm_module: the kernels.  steps: the instructions that kernels compute, then the rounds that kernels do, both in
    the plan's order.
    structure: the module's, as of the keys: another one may number computations otherwise.
    kernels: by what their code depends on (lower/kernels.py, `kernel_key`); those of the host are missing.
    rounds: by computation and instruction that communicates between the kernels' memories, the keys of the kernels that
    do its rounds' work."""

    llvm_module: GridModule
    steps: tuple[GridStep, ...]
    structure: Structure
    kernels: Mapping[Hashable, GridKernel]
    rounds: Mapping[tuple[str, str], tuple[Hashable, ...]] = field(default_factory=dict)

    def is_on_device(self, step: Kernel | Communicate) -> bool:
        """Whether a step's arrays are in the kernels' memory."""
        if isinstance(step, Communicate):
            return place_of(step) in self.rounds
        return kernel_key(self.structure, step) in self.kernels


def emit_grid_program(
    module: Module,
    plan: Plan,
    target: GridTarget,
    progress: Callable[[str], None] = lambda text: None,
    grid_rounds: GridRounds | None = None,
) -> GridProgram:
    """Emit the kernels of all steps; instructions that differ in names only share one.

    progress: called with the name of each instruction before it is lowered.  grid_rounds: gives the rounds of a step
    that is to communicate between the kernels' memories, None for any other.  Raises as `emit_grid_kernel`, but for
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
        key = kernel_key(structure, step)
        if key not in made:
            name = f"kernel_{len(made)}_{re.sub(r'[^A-Za-z0-9_]', '_', instruction.name)}"
            try:
                if _counts(step):
                    raise NoGridFormError("single integers, such as a loop's count, are read there")
                made[key] = emit_grid_kernel(grid_module, module, step, name)
            except NoGridFormError as reason:
                made[key] = str(reason)
        found = made[key]
        if isinstance(found, str):
            steps.append(GridStep(instruction, None, found))
        else:
            steps.append(GridStep(instruction, found))
    kernels = {key: found for key, found in made.items() if isinstance(found, GridKernel)}
    rounds: dict[tuple[str, str], tuple[Hashable, ...]] = {}
    for step in plan.walk():
        if not isinstance(step, Communicate) or not kernels or grid_rounds is None:
            continue
        found_rounds = grid_rounds(step)
        if found_rounds is None:
            continue
        progress(step.instruction.name)
        for each in found_rounds:
            key = round_key(structure, each)
            if key not in kernels:
                kernels[key] = emit_grid_round(grid_module, module, each, f"round_{len(kernels)}")
            steps.append(GridStep(step.instruction, kernels[key]))
        rounds[place_of(step)] = tuple(round_key(structure, each) for each in found_rounds)
    return GridProgram(grid_module, tuple(steps), structure, kernels, rounds)


def place_of(step: Communicate) -> tuple[str, str]:
    """The instruction, by its computation's name and its own."""
    return step.computation.name, step.instruction.name


def _counts(step: Kernel) -> bool:
    """Whether the kernel makes single integers and predicates of others, as conditions of loops and indices do."""
    operands = (operand.shape for operand in step.computation.operands(step.instruction))
    leaves = [leaf for shape in (*operands, step.instruction.shape) for leaf in shape.leaves() if leaf.is_array]
    return step.instruction.op.effects.is_free and all(
        not leaf.dims and not leaf.dtype.is_float and not leaf.dtype.is_complex for leaf in leaves
    )


__all__ = ["GridProgram", "GridStep", "emit_grid_program", "place_of"]
