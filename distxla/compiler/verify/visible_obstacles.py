"""Which instructions of a verified module this version cannot execute, as far as they show without compiling it."""

from __future__ import annotations

from collections.abc import Sequence

from distxla.compiler.verify.verifier import verify_module
from distxla.errors import UnsupportedOpError
from distxla.ir.computation import Computation
from distxla.ir.counts import Counts
from distxla.ir.instruction import Instruction
from distxla.ir.module import Module
from distxla.ir.op import Lowering
from distxla.ops.custom_calls.annotation import Annotation
from distxla.ops.custom_calls.custom_call import CustomCall
from distxla.ops.custom_calls.registry import find_target
from distxla.ops.support.executable import executable
from distxla.ops.support.one_device_groups import warn_of_one_device_groups
from distxla.ops.support.run_time_sizes import has_dynamic_dimensions
from distxla.rewrites.executed_form import CallHostComputations
from distxla.rewrites.spread_collectives import JoinSpreadCollectives

Obstacle = tuple[Instruction, str]  # and why it cannot be executed

# ops whose computations are applied to elements, as scalar code
ELEMENTWISE_CALLERS = {Lowering.ELEMENT, Lowering.REDUCTION, Lowering.KERNEL, Lowering.COMMUNICATION}
# ops that such a computation may hold
SCALAR_LOWERINGS = {Lowering.ELEMENT, Lowering.ALIAS, Lowering.CALL}


def visible_obstacles(module: Module) -> list[Obstacle]:
    """The instructions reachable from the entry that cannot be executed, in the order of the text.

    Instructions refused only because of run-time sizes of their operands are found when the module is compiled, or by
    `compiler.obstacles`.
    """
    module = JoinSpreadCollectives().run(CallHostComputations().run(module))
    found: list[Obstacle] = []
    for computation in module.reached():
        for instruction in computation:
            operands = [operand.shape for operand in computation.operands(instruction)]
            why = executable(instruction.op).instruction_obstacle(instruction, operands)
            if why is not None:
                found.append((instruction, why))
    for computation in _applied(module):
        for instruction in computation:
            if not instruction.op.role.is_parameter and not _is_scalar_code(instruction):
                why = f"this version cannot execute {instruction.opcode} in a computation applied to elements"
                found.append((instruction, why))
    return found or _dynamic_expansions(module)


def _is_scalar_code(instruction: Instruction) -> bool:
    """Whether a computation that is applied to elements may hold it. JAX 0.12 writes annotations there, too."""
    if isinstance(instruction.op, CustomCall):
        return isinstance(find_target(instruction.op.custom_call_target), Annotation)
    return instruction.op.lowering in SCALAR_LOWERINGS


def require_compilable(module: Module, counts: Counts, *, given: Module) -> None:
    """VerificationError where a rule is broken, UnsupportedOpError for what can't be executed as far as it is seen; a
    DistxlaWarning, once for each module that the user gives, where groups have one device each.

    given: the user's module, of which `module` was made.
    """
    verify_module(module, counts.replicas, counts.partitions)
    refuse(module, visible_obstacles(module))
    warn_of_one_device_groups(given, counts, executed=module)


def refuse(module: Module, found: Sequence[Obstacle]) -> None:
    """Raise UnsupportedOpError, located at the first of these instructions, naming all opcodes and all custom-call
    targets; none raise nothing."""
    if not found:
        return
    (first, message), names = found[0], [_named(i) for i, _ in found]
    if others := sorted(set(names) - {names[0]}):
        message += f" (nor {', '.join(others)}, further on)"
    raise UnsupportedOpError(message, module.locate(first, "opcode"))


def _named(instruction: Instruction) -> str:
    """The opcode; of a custom-call what it calls."""
    op = instruction.op
    return f'"{op.custom_call_target}"' if isinstance(op, CustomCall) else instruction.opcode


def _dynamic_expansions(module: Module) -> list[Obstacle]:
    """The first instruction that would be replaced by others, which know no dynamic dimensions."""
    if not has_dynamic_dimensions(module):
        return []
    for computation in module.reached():
        for instruction in computation:
            shapes = (instruction.shape, *(operand.shape for operand in computation.operands(instruction)))
            if instruction.op.lowering is Lowering.EXPANSION and any(shape.is_dynamic for shape in shapes):
                return [(instruction, f"this version cannot execute {instruction.opcode} of dynamic dimensions")]
    return []


def _applied(module: Module) -> Sequence[Computation]:
    """The computations that some instruction applies element by element (reduce, sort, map …), in module order."""
    names = {
        name
        for computation in module.reached()
        for instruction in computation
        if instruction.op.lowering in ELEMENTWISE_CALLERS
        for name in instruction.op.called_computations
    }
    return module.reached(*names) if names else ()


__all__ = ["Obstacle", "refuse", "require_compilable", "visible_obstacles"]
