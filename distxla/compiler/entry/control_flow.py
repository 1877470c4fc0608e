"""Loops, branches and calls of routines, as basic blocks of the function around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from llvmlite import ir

from distxla.collectives.protocols.control_block import LOOP_DEPTHS, iterations_field
from distxla.compiler.entry.function_body import FunctionBody
from distxla.compiler.entry.watching import Watching
from distxla.compiler.plan.breadcrumbs import has_rounds
from distxla.compiler.plan.buffers import Branch, Invoke, Loop, PlanStep
from distxla.emit.native_function import I8, I32, I64
from distxla.ir.module import Module
from distxla.program.artifact import EnclosingLoop


class ControlFlow:
    """Emits loops, branches and calls of routines.

    steps: emits the steps within.  routines: the functions of the plan's routines.  loops: that have rounds in them,
    around the current step.  in_routine: loops in it are not counted in the record, where its callers count theirs."""

    def __init__(
        self,
        module: Module,
        steps: Callable[[FunctionBody, tuple[PlanStep, ...]], None],
        routines: Sequence[ir.Function],
        watching: Watching | None,
    ) -> None:
        self._module, self._steps, self._routines, self._watching = module, steps, routines, watching
        self.loops: list[EnclosingLoop] = []
        self.in_routine = False

    def depth(self, step: PlanStep) -> int:
        """How many of the loops around a step, and the step itself, count in the record."""
        return len(self.loops) + (isinstance(step, Loop) and self._is_counted(step))

    def emit_loop(self, body: FunctionBody, step: Loop) -> None:
        block, name = body.function.append_basic_block, step.instruction.name
        test, inside, done = (block(f"{name}.{part}") for part in ("test", "body", "done"))
        counters = []
        for word in self._counters(body, step):
            body.builder.store(I32(0), word)
            counters.append(word)
        body.builder.branch(test)
        body.builder.position_at_end(test)
        body.stop_if_aborted()
        self._steps(body, step.condition)
        again = body.builder.load(body.pointer(step.predicate), typ=I8)
        body.builder.cbranch(body.builder.icmp_unsigned("!=", again, I8(0)), inside, done)
        body.builder.position_at_end(inside)
        for word in counters:
            body.builder.store(body.builder.add(body.builder.load(word, typ=I32), I32(1)), word)
        self._steps(body, step.body)
        if self._is_counted(step):
            self.loops.pop()
        body.builder.branch(test)
        body.builder.position_at_end(done)

    def _is_counted(self, step: Loop) -> bool:
        return has_rounds(step) and not self.in_routine

    def _counters(self, body: FunctionBody, step: Loop) -> Iterator[ir.Value]:
        """Where a loop that begins counts its iterations, i32: in the record, for reports, and where it is watched."""
        if self._is_counted(step):
            instruction = step.instruction
            location = self._module.locate(instruction)
            holder = self._module.holder_of(instruction)
            self.loops.append(EnclosingLoop(instruction.name, "" if holder is None else holder.name, location))
            place = I64(iterations_field(len(self.loops)))
            word = body.begin.gep(body.field("record"), [place], source_etype=I8)
            if len(self.loops) < LOOP_DEPTHS:
                yield word
        if self._watching is not None:
            yield self._watching.counter(body, step)

    def emit_branch(self, body: FunctionBody, step: Branch) -> None:
        name = step.instruction.name
        done = body.function.append_basic_block(f"{name}.done")
        blocks = [body.function.append_basic_block(f"{name}.case{k}") for k in range(len(step.branches))]
        selector = body.pointer(step.selector)
        if step.by_predicate:
            holds = body.builder.load(selector, typ=I8)
            body.builder.cbranch(body.builder.icmp_unsigned("!=", holds, I8(0)), blocks[0], blocks[1])
        else:
            switch = body.builder.switch(body.builder.load(selector, typ=I32), blocks[-1])
            for k, block in enumerate(blocks[:-1]):
                switch.add_case(I32(k), block)
        for block, steps in zip(blocks, step.branches, strict=True):
            body.builder.position_at_end(block)
            self._steps(body, steps)
            body.builder.branch(done)
        body.builder.position_at_end(done)

    def emit_invoke(self, body: FunctionBody, step: Invoke) -> None:
        body.call(self._routines[step.routine])
