"""Which steps of a plan say in the device's record, or in a trace, that they run."""

from __future__ import annotations

from distxla.compiler.plan.buffers import Branch, Communicate, Copy, Invoke, Kernel, Loop, PlanStep, Swap, Transfer
from distxla.ir.op import Lowering

SHORT_BYTES = 8192  # arrays up to here are handled in less than about a microsecond
UNNOTED_BYTES = 1024  # arrays up to here take so little time that a store would be a noticeable part of it

_KINDS = {
    Kernel: "kernel",
    Copy: "copy",
    Transfer: "copy",
    Loop: "loop",
    Branch: "branch",
    Communicate: "call",
    Invoke: "routine",
}


def has_breadcrumb(step: PlanStep) -> bool:
    """Whether the step is worth a store: those that are not take nanoseconds, call nothing, and cannot fail."""
    if isinstance(step, Copy):
        return step.source.size > UNNOTED_BYTES
    if isinstance(step, Kernel):
        largest = max((b.size for b in (*step.operands, *step.results)), default=0)
        return largest > UNNOTED_BYTES or not step.instruction.op.effects.is_free
    return not isinstance(step, Branch | Swap)


def is_traced(step: PlanStep) -> bool:
    """Whether a traced program records the step; communicating steps are recorded in any program."""
    if isinstance(step, Communicate):
        return step.instruction.op.lowering is Lowering.HOST
    return not isinstance(step, Swap)


def may_be_long(step: PlanStep) -> bool:
    """Whether the step may take more than about a microsecond, by the arrays that it handles."""
    if isinstance(step, Copy):
        return step.source.size > SHORT_BYTES
    if isinstance(step, Kernel):
        largest = max((b.size for b in (*step.operands, *step.results)), default=0)
        return largest > SHORT_BYTES or not step.instruction.op.effects.is_free
    if isinstance(step, Communicate):
        return is_traced(step)
    if isinstance(step, Transfer):  # waits for kernels
        return True
    return isinstance(step, Loop | Invoke) and not has_rounds(step)


def kind_of(step: PlanStep) -> str:
    """StepOrigin.kind."""
    return _KINDS[type(step)]


def has_rounds(step: PlanStep) -> bool:
    """Whether the step communicates, or a step within it does."""
    if isinstance(step, Loop):
        return any(map(has_rounds, (*step.condition, *step.body)))
    if isinstance(step, Branch):
        return any(has_rounds(inner) for steps in step.branches for inner in steps)
    return step.communicates if isinstance(step, Invoke) else isinstance(step, Communicate)
