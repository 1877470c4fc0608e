"""What steps leave in the device's record while they run: breadcrumbs, and the events of a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from distxla.collectives.protocols.control_block import iterations_field
from distxla.collectives.transports.seam import CommunicationEmitter
from distxla.compiler.entry.function_body import FunctionBody
from distxla.compiler.plan.breadcrumbs import has_breadcrumb, is_traced, kind_of, may_be_long
from distxla.compiler.plan.buffers import PlanStep
from distxla.emit.native_function import I32, I64
from distxla.ir.instruction import Instruction
from distxla.targets.code import target_of


class Tracing:
    """Emits what says where a device is: breadcrumbs, and events of traced programs.

    numbered: instructions, and kinds of their steps, by the number that the record holds while they run.
    is_point: whether a fault can be injected at a step.  depth: how many counted loops a step's event is in."""

    def __init__(
        self,
        communication: CommunicationEmitter,
        is_point: Callable[[PlanStep], bool],
        depth: Callable[[PlanStep], int],
        *,
        traced: bool,
    ) -> None:
        self.numbered: list[tuple[Instruction, str]] = []
        self._communication, self._is_point, self._depth, self._traced = communication, is_point, depth, traced

    @contextmanager
    def breadcrumb(self, body: FunctionBody, step: PlanStep) -> Iterator[None]:
        """Store the step's number before it, if it has one."""
        if (self._traced and is_traced(step)) or has_breadcrumb(step) or self._is_point(step):
            body.builder.store(I32(len(self.numbered)), body.breadcrumb)
            self.numbered.append((step.instruction, kind_of(step)))
        if may_be_long(step):
            body.builder.store(I32(1), body.busy_word)  # the next round looks at the clock
        yield

    @contextmanager
    def event(self, body: FunctionBody, step: PlanStep) -> Iterator[None]:
        """Record when the step, which has just got its breadcrumb, ran: for programs that are traced."""
        if not is_traced(step):
            yield
            return
        number, begun = len(self.numbered) - 1, target_of(body.builder).emit_cycles(body.builder)
        yield
        recorder = self._communication.emit_step_recorder(body.builder.module)
        iterations = I64(iterations_field(self._depth(step)))
        body.builder.call(recorder, [body.context, I32(number), begun, iterations])
